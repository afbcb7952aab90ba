"""One run: how it is launched, lives (`lifecycle`), suffers its faults, is resumed and is cleaned away."""
