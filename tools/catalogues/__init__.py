"""Makers of catalogues: each reads what emitters ship (sources, wheels, packages) and writes `runner/rootcause/catalogues/*.jsonl`."""
