"""Catalogues: finds the lines of a log that an emitter's own format strings explain (`runner/rootcause/catalogues/*.jsonl`).

`files` reads and validates them, `formats` makes patterns of format strings, `table` packs all rows into one compact file, `cache`
has it compiled once for a machine, `catalogues` judges a line by it, and `line_search` finds such lines in the blocks of a log.
A broken catalogue is named in `Catalogues.defects`, and the rest serves. Nothing here writes but to the cache.
"""
