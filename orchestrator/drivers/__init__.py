"""The drivers: a node is a process in namespaces, a container, or a coroutine. Each driver is one folder."""
