"""Step times and throughputs of a short log."""
