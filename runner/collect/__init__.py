"""Collect: reads on the node what programs and the kernel wrote, and makes facts of it.

Agents call it, and whoever looks at a log by hand. It is told the time and told the paths; the bytes it reads are hostile text:
nothing of them is run, lines and memory are bounded, and what cannot be read is counted or left out, never guessed. It writes
nothing and decides nothing.
"""
