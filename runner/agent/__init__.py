"""The node's side: an agent makes its assignment true, a keeper is the parent of the ranks.

The law of this package. The *keeper* (`runner.keeper`) spawns ranks, sees them die, and outlives agents; it decides nothing. The
*agent* alone talks to the store: it reads what the node is to run, has the keeper end and start ranks, aggregates their reports,
and reports truthfully what it observes. One thread owns all state; one thread blocks in reads of the store, one writes to it, and
both only post into the owner's loop.

An agent may die at any moment, and the next one misses no exit: the keeper keeps exits, a spool file keeps what the store has not
acknowledged. Every durable signal is therefore sent at least once, and may come twice. No rank is started twice for one
generation, and none is reported as gone unless it was seen to be gone. An agent that lost the store leaves ranks that advance
alone. What ranks write or report is not trusted: it is aggregated, cut and counted, never obeyed.
"""
