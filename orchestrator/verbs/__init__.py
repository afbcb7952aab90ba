"""What the command line offers beside `up`: looking, comparing, diagnosing. Each module is one verb."""
