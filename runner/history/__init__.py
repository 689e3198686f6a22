"""History: what the journal says happened, in words and in figures. Pure folds of journal entries.

Nothing here decides, reads a clock or opens a file: entries go in, and out come the story (a chain from first signal to last
effect), the lineage (which attempt's steps are in the weights) and the ledger (where the time went). The supervisor folds
the ledger as it goes; the command line folds what it reads from the store. Both get the same figures from the same entries.
"""
