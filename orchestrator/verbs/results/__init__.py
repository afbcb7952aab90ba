"""What runs have recorded: tables, comparisons, exports, logs and folders."""
