"""How logs end: the last lines of each are kept while it is read, and read once at its end."""
