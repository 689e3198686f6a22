"""Providers: where nodes come from, how their agents are started and stopped, and how a node is probed from outside.

A provider performs; it never decides. Every operation may be repeated. Each kind registers itself.
"""
