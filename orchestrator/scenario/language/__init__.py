"""The YAML of scenarios: syntax, places, quantities and the messages about mistakes."""
