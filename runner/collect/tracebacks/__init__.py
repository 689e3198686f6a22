"""Tracebacks: read from the bytes of a log around the lines that begin one, or that are a part of one. Nothing is judged here.

Only blocks in which the engine found such a line cost anything. Hostile text has bounded memory and time, and always an outcome.
"""
