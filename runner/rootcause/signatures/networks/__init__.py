"""Signatures of what connects ranks: collective libraries, MPI, cards and switches, meetings at the start, hangs."""
