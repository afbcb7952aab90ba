"""FEELPGen and its variants: roles (`roles`), parameters, the generator and the private projection."""
