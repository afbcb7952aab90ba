"""One run: its launch, its `lifecycle`, its faults, its continuation and its removal."""
