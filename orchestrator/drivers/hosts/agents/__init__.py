"""The agents of hosts: how they are started, the channel to them, and the calls on them."""
