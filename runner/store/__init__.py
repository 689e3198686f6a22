"""The store seam: the one place where processes of a cluster meet.

The law of this package. A store keeps *streams* (append-only, numbered 1, 2, 3, ...), *registers* (named values whose
version rises) and *leases* (one holder at a time, a token that never falls). It knows bytes, not meanings; only `journal`
looks inside, and only at the entries it wrote. An acknowledged write is on disk, except in volatile streams and
registers, which cost no fsync and may be lost with the machine. A write that carries a lease is checked against it in the
same transaction, so a holder that was replaced while it was suspended can do no harm.

Supervisor, agents and the command line call it from any thread; a waiting caller blocks in `Store.read`, which costs
nothing meanwhile. A store never decides, never retries on its own beyond its deadline, and raises no error but those of
`runner.errors` and `LeaseHeld`.
"""
