"""What a run shows while it continues."""
