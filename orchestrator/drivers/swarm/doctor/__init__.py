"""The examination of hosts by `hosts doctor`, and what it finds."""
