"""What changes a run while it continues: faults, commands and the pace of a simulation."""
