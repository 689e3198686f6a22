"""Checks that have a device do real work, by a probe in the interpreter of the runs: from the level `quick` on."""
