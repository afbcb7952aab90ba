"""What is copied to hosts and from them: files and images."""
