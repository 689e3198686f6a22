"""Makers of catalogues: each reads what emitters ship and writes `runner/rootcause/catalogues/*.jsonl`."""
