"""Named media, each with its published source: typical values to start from, as the link profiles of `netem.library`.

A medium is in the form of a scenario's `shared`. Its rate is that of the medium as a whole; what one member gets is the
rule's share of it, and never more than its own link. `SOURCES` also states the assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping

MEDIA: dict[str, Mapping[str, str]] = {
    "lte-cell": {"up": "28mbit", "down": "44mbit", "share": "airtime"},
    "5g-cell": {"up": "135mbit", "down": "585mbit", "share": "airtime"},
    "wifi-ap": {"rate": "39mbit", "duplex": "half", "share": "airtime"},
    "dsl-home": {
        "up": "0.82mbit",
        "down": "5.66mbit",
        "share": "fifo",
        "buffer": "64kb",
    },
    "lora-gateway": {"rate": "5.47kbit", "duplex": "half", "share": "fifo"},
}

SOURCES: dict[str, str] = {
    "lte-cell": "Report ITU-R M.2134: a cell of IMT-Advanced in base coverage urban carries at least 2.2 bit/s/Hz "
    "down and 1.4 bit/s/Hz up; here in 20 MHz for each direction, the widest carrier of LTE (3GPP TS 36.101). Assumed: "
    "a proportional fair scheduler, which gives members equal time in the mean.",
    "5g-cell": "Report ITU-R M.2410: a cell of IMT-2020 in dense urban eMBB carries at least 7.8 bit/s/Hz down and 5.4 "
    "bit/s/Hz up; here in 100 MHz, the widest carrier of NR below 6 GHz (3GPP TS 38.101-1). Assumed: 3 of 4 slots "
    "are for down, and a proportional fair scheduler.",
    "wifi-ap": "The rate of the link profile wifi, for all stations together: 60 % (assumed) of 65 Mbit/s, MCS 7 of "
    'IEEE 802.11n in 20 MHz. airtime: as Linux since Høiland-Jørgensen et al., "Ending the anomaly: achieving low '
    'latency and airtime fairness in WiFi", USENIX ATC 2017; take share: frames for an older access point. Left out: '
    "collisions that increase with the number of stations.",
    "dsl-home": "The rates of the link profile dsl: medians of the 3.1 to 7 Mbit/s tier of Verizon's ADSL in FCC, "
    '"2016 Measuring Broadband America: fixed broadband report". Assumed: one queue of 64 kB in each direction.',
    "lora-gateway": "The rate of the link profile lora-gateway, one channel at spreading factor 7 in 125 kHz (Semtech "
    "AN1200.22). Left out: the duty cycle of 1 %, the other channels of a gateway, and collisions: without "
    'coordination a channel carries at most 1/(2e) = 18 % of its rate (Abramson, "The ALOHA system", AFIPS 1970).',
}
"""The source of each medium's values, and what is assumed."""
