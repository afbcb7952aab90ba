"""What this host tells about itself: temperature, frequency, throttling, memory, power and energy.

`sources` finds the sensors, `sensor` reads them, `sensing` reads them again and again while other work goes on, and
decides which readings are worth a row of the record.
"""
