"""What a cluster serves over the network, and what is asked of it: readers of status, journal and steps, and senders of requests.

Nothing here touches the supervisor's memory: a process of its own can serve the same pages, with
their age, after the supervisor died.
"""
