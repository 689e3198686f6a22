"""Health checks of one node: real work with a known result, compared with named limits.

The law of this package. A check is a function from facts about the node and limits to a verdict: PASS, FAIL or UNKNOWN, with
each measured value beside its limit. Unknown is not healthy: an exception, a missing device, a file that may not be read, a
probe that hangs or ends without a verdict are UNKNOWN, and a verdict that measured nothing cannot pass. Only a measured value can
FAIL. Nothing is compared with itself: what is read back is compared with a value that was worked out in another way.

Each check runs in a process group of its own under a hard deadline, and is killed when that has passed. A check knows no other
check and no caller, changes nothing on the node, and leaves nothing behind when it ends by itself. Its limits are those that it
declares and those of the command line. What within it may hang runs in children of its own, so that it can name what hung and
judge the rest.

`python -P -m healthchecks` runs the checks; `stoker check` is that command for people. Agents run it too: when the supervisor wants
a node checked, as `checks` in cluster.yaml says, a node that has not passed becomes no spare. A new check is one file in
`healthchecks/checks`.
"""
