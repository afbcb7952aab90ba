"""Links: units and profiles, the fate of each packet, schedules, the kernel's commands, the userspace switch, and
measurement of what a link does against what it was asked to do."""
