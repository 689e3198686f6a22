"""From a fault to the first new step: what it takes under Stoker, and under a peer that runs the same script beside it.

Every round breaks something that runs, by pid and for real, and reads two moments off one clock: the fault, noted here, and the
first step done by a process that was not there before. In a script that step is stamped by the script itself, in the same way
under either launcher; for the built-in trainer it is the report as another reader of the store sees it. So the supervisor, its
decision and every fsync are inside. `python -m bench.recovery --help` lists the cases; the peer is installed, once, into an
environment of its own in `.cache/`.
"""
