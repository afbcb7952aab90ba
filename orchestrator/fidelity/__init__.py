"""Fidelity of the emulation: an audit of losses, and detection of host overload."""
