"""Signatures of accelerators: their drivers, codes, heat."""
