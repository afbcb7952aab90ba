"""Models of TCP connections over shaped links, without packets."""
