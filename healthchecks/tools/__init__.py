"""Tools of others that test hardware: how each is called, and what its output says. None is needed: one that is absent is noted.

The law of this package. A tool's own verdict counts together with its numbers; an output without either is half an answer.
"""
