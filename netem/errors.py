"""Errors of the links.

UnitError and ProfileError are also ValueErrors, so that a schema library reports them with the position in the file.
"""

from __future__ import annotations


class NetemError(Exception):
    """Any error of a link."""


class UnitError(NetemError, ValueError):
    """A quantity that cannot be parsed, such as 10Mbps or 20 without a unit; the message says how to write it."""


class ProfileError(NetemError, ValueError):
    """A link profile with an unknown key or an invalid value; the message names the key and the allowed values."""


class ScheduleError(NetemError, ValueError):
    """A schedule or trace of profiles that cannot be parsed; the message names the line."""


class TcError(NetemError):
    """Output of tc that cannot be parsed, or a link that tc cannot express."""


class SwitchError(NetemError):
    """The userspace engine refused a request, or ended while in use."""


class MeasureError(NetemError):
    """A probe that could not be run, or that gave no result."""
