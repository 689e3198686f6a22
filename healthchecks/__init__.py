"""Health checks of one node: real work with a known result, compared with named limits.

The law of this package. A check is a function from facts about the node and limits to a verdict: PASS, FAIL or UNKNOWN, with
each measured value beside the limit it was held against. Unknown is not healthy: an exception, a missing device, a file that
may not be read, a probe that hangs or ends without a verdict are UNKNOWN, never PASS, and a verdict that measured nothing
cannot pass. FAIL is said only of what was measured. Nothing is compared with itself: what is read back is compared with what
ought to be there, worked out on another way.

Each check runs in a process group of its own under a hard deadline and is killed when that has passed. Checks know neither
one another nor who started them, change nothing on the node, and leave nothing behind. Limits come from one table and from
the command line, from nowhere else. `python -P -m healthchecks` runs them; `stoker check` is that command for people. Not yet
called by the daemon: joining a cluster does not depend on these checks so far. Checks of accelerators and of links between
nodes will be further files of the same form.
"""
