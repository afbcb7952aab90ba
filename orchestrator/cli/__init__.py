"""The command line: its commands, and the options that they share."""
