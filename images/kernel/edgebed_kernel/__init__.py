"""The kernel of `edgebed up --virtual`: the file `linux` next to this one. It has no code of its own."""
