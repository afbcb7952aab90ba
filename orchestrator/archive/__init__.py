"""Archives that reproduce themselves: runs in one file, with what is expected when they are repeated elsewhere."""
