"""Collect: reads on the node what programs and the kernel wrote, and makes facts of it.

Agents and `stoker diagnose` call it. Its caller passes the time and the paths. The bytes are
hostile text: nothing of them is run, lines and memory are bounded, and unreadable parts are counted
or dropped, never guessed. It writes nothing and decides nothing.
"""
