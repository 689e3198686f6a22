"""Serve: what others read of a cluster over the network. It reads the View and the journal, and writes requests only.

Nothing here touches the supervisor's memory: the same pages come from a process of their own, and go on when the supervisor
is dead, saying how old what they show is.
"""
