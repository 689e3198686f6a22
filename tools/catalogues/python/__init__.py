"""Makers of catalogues of Python libraries: what their code raises, logs, warns and prints, read with `ast` and never run."""
