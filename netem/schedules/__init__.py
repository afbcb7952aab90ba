"""Changes of a link over time, from a schedule or from the file of a trace."""
