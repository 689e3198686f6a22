"""What a cluster serves over the network. It reads the published status and the store, and writes nothing.

Nothing here touches the supervisor's memory: a process of its own can serve the same pages, with
their age, after the supervisor died.
"""
