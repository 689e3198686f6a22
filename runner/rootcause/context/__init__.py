"""Context: what the lines around a line make of it, in a log and in a tool's report. Pure."""
