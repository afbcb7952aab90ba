"""Archives: runs in one file, with the results to expect when the runs are repeated elsewhere."""
