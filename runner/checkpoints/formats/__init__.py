"""Formats: which checkpoints of trainers that know nothing of Stoker are whole, and of which step. One adapter for each trainer.

An adapter names the checkpoints of its trainer among the entries of a folder, judges one (whole, or which file is not), and knows
the arguments that resume from it. It reads names, sizes and the form of files; nothing is unpickled, imported or written.
`folder_scan` finds the checkpoints below a folder, `table` lists the adapters. Standard library only, like all of `checkpoints`.
"""
