"""What the commands of the command line and the Python interface call."""
