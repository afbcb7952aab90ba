"""Claims of papers: what they say, the sweep that checks it, and the figures of the last check."""
