"""Several hosts: which host runs which node, and what crosses between them."""
