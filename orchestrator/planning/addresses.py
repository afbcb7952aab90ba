"""The network that the addresses of a run's nodes are in."""

from __future__ import annotations

import ipaddress

NETWORK = ipaddress.IPv4Network("10.77.0.0/16")
