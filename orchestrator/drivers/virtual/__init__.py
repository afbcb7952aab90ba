"""The driver for virtual time: nodes are processes of a guest kernel, and its clock jumps to the next timer."""
