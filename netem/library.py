"""Named link profiles, each with its published source: typical values to start from, not a measurement of your link.

A profile is one direction. If the directions differ, the plain name is the downlink (towards the device) and the name
with "-up" is the uplink: ``device -> edge: lte-up`` is a device's upload. Latency is half the published round trip,
because most sources give no one-way delay, no jitter and no loss of single packets. `SOURCES` also states the
assumptions. A profile has no loss if no source gives a figure: radio links repair losses below IP, and TCP causes its
own losses at a full buffer.
"""

from __future__ import annotations

from netem.profile import LinkProfile

PROFILES: dict[str, LinkProfile] = {
    "lan": LinkProfile(latency=0.0001, rate=1e9),
    "fast-ethernet": LinkProfile(latency=0.0001, rate=100e6),
    "wifi": LinkProfile(
        latency=0.01,
        jitter=0.005,
        distribution="pareto",
        rate=39e6,
    ),
    "wifi-5ghz": LinkProfile(
        latency=0.01,
        jitter=0.005,
        distribution="pareto",
        rate=175.5e6,
    ),
    "3g": LinkProfile(latency=0.03175, jitter=0.01, rate=5.9e6),
    "3g-up": LinkProfile(latency=0.03175, jitter=0.01, rate=1.6e6),
    "lte": LinkProfile(latency=0.0105, jitter=0.003, rate=29.5e6),
    "lte-up": LinkProfile(latency=0.0105, jitter=0.003, rate=7.6e6),
    "5g": LinkProfile(latency=0.0095, jitter=0.002, rate=129.9e6),
    "5g-up": LinkProfile(latency=0.0095, jitter=0.002, rate=14.7e6),
    "dsl": LinkProfile(latency=0.0185, rate=5.66e6),
    "dsl-up": LinkProfile(latency=0.0185, rate=0.82e6),
    "starlink": LinkProfile(latency=0.0235, jitter=0.005, rate=116.77e6),
    "starlink-up": LinkProfile(latency=0.0235, jitter=0.005, rate=18.17e6),
    "satellite": LinkProfile(latency=0.315, jitter=0.01, rate=18.13e6),
    "satellite-up": LinkProfile(latency=0.315, jitter=0.01, rate=3.38e6),
    "wan-eu": LinkProfile(latency=0.015, rate=1e9),
    "wan-us-eu": LinkProfile(latency=0.045, rate=1e9),
    "lora-gateway": LinkProfile(latency=0.5, rate=5470.0),
}

SOURCES: dict[str, str] = {
    "lan": "Gigabit Ethernet, IEEE 802.3 clause 40 (1000BASE-T). A full frame takes 12 us per hop. The hosts cause the "
    "rest of the latency: their drivers delay interrupts by up to 125 us (Intel e1000's former default of 8000 a "
    "second, Linux commit 835bb1298311). Assumed: 100 us.",
    "fast-ethernet": "The 100 Mbit/s of IEEE 802.3 clause 25 (100BASE-TX), as in a Raspberry Pi up to the 3 B. Latency "
    "as for lan.",
    "wifi": "Rate: one spatial stream of IEEE 802.11n in 20 MHz, MCS 7, is 65 Mbit/s on the air. Assumed: 60 % remain "
    'after access and acknowledgements. Latency: Pei et al., "WiFi can be the weakest link of round trip network '
    'latency in the wild", INFOCOM 2016: half of the packets on a campus saw more than 20 ms on the hop, a tenth more '
    "than 100 ms. The tail's shape is assumed, and shorter than theirs.",
    "wifi-5ghz": "Rate: one spatial stream of IEEE 802.11ac in 80 MHz, MCS 7, is 234 subcarriers * 6 bit * 5/6 every "
    "4 us = 292.5 Mbit/s on the air, the kind of radio in a Raspberry Pi since the 3 B+. The other values and "
    "assumptions are those of wifi. A quiet channel is better, a busy one worse.",
    "3g": 'Ofcom, "Measuring mobile broadband performance in the UK", April 2015, as Mobile News cites it: averages of '
    "5.9 Mbit/s down, 1.6 Mbit/s up and 63.5 ms of round trip on 3G in five cities. Assumed: jitter.",
    "lte": 'Ofcom, "Mobile Matters" 2023: UK averages of 29.5 Mbit/s down and 7.6 Mbit/s up on 4G. The 2024 issue: '
    "average response times of 18.3 to 23.7 ms by operator. Assumed: jitter.",
    "5g": 'Ofcom, "Mobile Matters" 2023 and 2024, for 5G, in the UK mostly non-standalone: 129.9 Mbit/s down, 14.7 '
    "Mbit/s up, 16.3 to 21.4 ms of response time. Assumed: jitter.",
    "dsl": 'ADSL of the 3.1 to 7 Mbit/s tier of Verizon in FCC, "2016 Measuring Broadband America: fixed broadband '
    'report": medians of 5.66 Mbit/s down, 0.82 Mbit/s up and 37.05 ms of round trip, as the operator cites them.',
    "starlink": 'Ookla, "Above Maine, Starlink twinkles", December 2024: medians of 116.77 Mbit/s down, 18.17 Mbit/s '
    'up and 47 ms of latency. Assumed: jitter. The reconfigurations every 15 s (Mohan et al., "A multifaceted look at '
    'Starlink performance", WWW 2024), with their bursts of loss, need a schedule: scenarios/on-the-move.yaml has one.',
    "satellite": "A geostationary satellite: Ookla, \"How Starlink's satellite internet stacks up against HughesNet "
    "and Viasat around the globe\", August 2021: Viasat's medians of 18.13 Mbit/s down, 3.38 Mbit/s up and 630 ms. "
    "Assumed: jitter.",
    "wan-eu": "Verizon's service level agreement for its backbone: 30 ms or less of average round trip within Europe. "
    "Assumed: a port of 1 Gbit/s at each end.",
    "wan-us-eu": "Verizon's service level agreement for its backbone: 90 ms or less of average round trip between New "
    "York and London. Assumed: a port of 1 Gbit/s at each end.",
    "lora-gateway": "LoRa at spreading factor 7 in 125 kHz with coding rate 4/5 (DR5 of LoRaWAN Regional Parameters, "
    "EU863-870): 7 * 125000 / 2^7 * 4/5 = 5469 bit/s (Semtech AN1200.22), given there as 5470. A class A device "
    "receives an answer 1 s after it sent (RECEIVE_DELAY1), here half of it each way. Left out: the duty cycle of 1 %, "
    "frames of at most 242 bytes, collisions. IP over LoRa only serves to show the effect of such a rate.",
}
"""The source of each profile's values, and what is assumed. A profile and its "-up" partner share one."""
