"""Probes: programs that do the real work of a check on a device, and print numbers as JSON.

The law of this package. A probe runs in the interpreter of the node's runs, which has torch where the control plane has none: one
file of the standard library and torch, which imports nothing of ours and runs in any Python from 3.10 on. One code path with
a device as its parameter: a CPU runs what a GPU runs. A probe decides nothing; the check of the same name judges its numbers.
It works for the time that it is given, and chooses its sizes by what it measures first. `pair` loads the file of `collectives`, as
`start.py` loads both: what is sent, and how a result is verified, has one owner.

`start.py` starts a probe: `python start.py PARENT NAME ASKED`. A probe defines `probe(asked, faults)`. `faults` are those that
the variable STOKER_PROBE_FAULTS plants for the self test of the checks; each probe documents the ones that it knows.
"""
