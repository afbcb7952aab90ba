"""What a run leaves: its record, and what is made of it."""
