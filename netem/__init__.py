"""Links: units and profiles, the fate of each packet, shared media, schedules, the kernel's commands, the userspace
switch, and measurement of a link against its profile."""
