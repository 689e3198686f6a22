"""Catalogues of accelerators: their drivers, runtimes, libraries and monitors."""
