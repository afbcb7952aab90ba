"""Whether the emulation can be trusted: loss that is audited, and a host that keeps up."""
