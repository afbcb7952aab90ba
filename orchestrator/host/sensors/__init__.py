"""What this host shows about itself: temperature, frequency, throttling, memory, power and energy.

`sources` finds the sensors, `sensor` reads them, `sensing` reads them repeatedly while other work continues, and
decides which readings are worth a row of the record.
"""
