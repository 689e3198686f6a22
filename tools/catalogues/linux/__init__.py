"""Catalogues of the Linux kernel: what is read, by area, how lines of each part begin, and what class they have."""
