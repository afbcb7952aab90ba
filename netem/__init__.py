"""Links: units and profiles, the fate of each packet, schedules, the kernel's commands, the userspace switch, and
measurement of a link against its profile."""
