"""Every event of a record as a typed value, with its name: of the run, of its links, of its hosts and of its nodes."""
