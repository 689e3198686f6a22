"""Tracebacks: what a program printed when an exception ended it, as an object, and the fault that it shows.

`collect.tracebacks` reads them. Here are tables and pure functions: the family of an exception (by its bases), the subject of the
code that raised it (by its package), the phase of the run, and from these three a fault.
"""
