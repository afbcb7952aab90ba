"""DFFKE: its roles (`roles`), its parameters, and the numerical steps of its phases."""
