"""The clients of a population in a scenario, and files with settings of single clients."""
