"""The node's side: an agent makes its assignment true, a keeper is the parent of the ranks.

The law of this package. The *keeper* is one file of standard library that any Python from 3.9 on
can run: it spawns ranks, sees them die, and outlives agents; it decides nothing. The *agent* is the
only one that talks to the store: it reads what the node is to run, has the keeper end and start
ranks, folds what they report, and says truthfully what it saw. Its owner thread owns all state; one
thread blocks in reads of the store, one writes to it, and both only post into the owner's loop.

An agent may die at any moment, and the next one misses no exit: the keeper keeps exits, a spool
file keeps what the store has not acknowledged. Every durable signal is therefore sent at least
once, and may come twice. No rank is ever started twice for one epoch, none is believed gone that
was not seen to be gone, and an agent that lost the store leaves ranks that advance alone. What
ranks write or report is hostile text: it is folded, cut and counted, never obeyed.
"""
