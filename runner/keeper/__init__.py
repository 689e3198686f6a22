"""The keeper: the parent process of a node's ranks, which outlives the agent (as containerd-shim outlives containerd).

Standard library only: it runs under any Python from 3.9 on, isolated from the environment of the ranks.
"""
