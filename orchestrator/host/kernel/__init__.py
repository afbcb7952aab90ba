"""What the kernel shows and allows: load, groups, modules, namespaces."""
