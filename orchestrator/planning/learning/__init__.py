"""What nodes train, on which data, and how long it takes."""
