"""Access to this host: directories, processes, control groups, signals and files."""
