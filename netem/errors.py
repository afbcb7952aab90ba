"""Errors of the links.

NetemError                     any error of a link; the base class to catch
├── UnitError                  a quantity that cannot be parsed: "10Mbps", 20 without a unit, NaN
├── ProfileError               a link profile with an unknown key or an invalid value
├── ScheduleError              a schedule or trace of profiles that cannot be parsed
├── TcError                    output of `tc` that cannot be parsed, or a link that tc cannot express
├── SwitchError                the userspace engine refused a request or ended
└── MeasureError               a probe could not be run or gave no result

UnitError and ProfileError are also ValueErrors, so that a schema library reports them with the position in the file.
"""

from __future__ import annotations


class NetemError(Exception):
    """Base class of the errors of links."""


class UnitError(NetemError, ValueError):
    """A quantity that cannot be parsed; the message says how to write it."""


class ProfileError(NetemError, ValueError):
    """An invalid link profile; the message names the key and the allowed values."""


class ScheduleError(NetemError, ValueError):
    """A schedule or trace that cannot be parsed; the message names the line."""


class TcError(NetemError):
    """Output of tc that cannot be parsed, or a link that tc cannot express."""


class SwitchError(NetemError):
    """The userspace engine refused a request, or ended while in use."""


class MeasureError(NetemError):
    """A probe that could not be run, or that gave no result."""
