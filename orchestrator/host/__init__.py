"""What a run is on this host: its directory, its processes, and how it is found and ended."""
