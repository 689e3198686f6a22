"""Messages: what crosses a process boundary, and the records of the journal. Frozen values; `wire` is their only codec."""
