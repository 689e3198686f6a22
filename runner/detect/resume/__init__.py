"""The resume check: whether the first steps after a restart are those that were made before. Pure."""
