"""What links and messages have carried."""
