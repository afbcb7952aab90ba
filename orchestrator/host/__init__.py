"""What runs stand on: this host's directories, processes, control groups, signals and files."""
