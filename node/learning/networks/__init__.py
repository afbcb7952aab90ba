"""Networks beyond those of the papers, the adapters of their layers, and what a pass through one costs."""
