"""Catalogues: what emitters can write, as data that `tools/catalogues` made of their own sources; no code.

One file of JSON lines for each emitter. The first line is its header, each further line one format string:

header: emitter, version, made (date), program (which made it), source (what it was read from), style ("printf", "braces",
"plain": how conversions look), layer, scope; optionally requires (words of which one must be in a line, any case).
row: at (file or enum), format, level ("error", "warning", "info", "debug"), fault ("" where none is known); optionally
layer, scope, requires, lasting (the same again on this hardware or with these settings), why (of a class that was set by hand).
"""
