"""Errors of the links.

NetemError                     anything wrong with a link; catch this one at the edges
├── UnitError                  a quantity that cannot be read: "10Mbps", a bare 20, NaN
├── ProfileError               a link profile with an unknown key or a value that makes no sense
├── ScheduleError              a schedule or trace of profiles that cannot be read
├── TcError                    `tc` said something that cannot be understood, or a link tc cannot express
├── SwitchError                the userspace engine refused a request or ended
└── MeasureError               a probe could not be run or gave no result

UnitError and ProfileError are ValueErrors too, so that a schema library reports them with the place in the file.
"""

from __future__ import annotations


class NetemError(Exception):
    """Anything wrong with a link."""


class UnitError(NetemError, ValueError):
    """A quantity that cannot be read; the message says how to write it."""


class ProfileError(NetemError, ValueError):
    """A link profile that is not valid; the message names the key and what is allowed."""


class ScheduleError(NetemError, ValueError):
    """A schedule or trace that cannot be read; the message names the line."""


class TcError(NetemError):
    """Output of tc that cannot be understood, or a link that tc cannot express."""


class SwitchError(NetemError):
    """The userspace engine refused a request, or ended while it was needed."""


class MeasureError(NetemError):
    """A probe that could not be run, or that gave no result."""
