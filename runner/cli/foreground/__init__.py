"""Foreground: a run that a person watches. Somebody leads, a screen shows it, Ctrl-C ends it in order, nothing is left behind.

`child` sees to the supervisor, `follow` is the loop, `screen` and `changes` show it, `summary` closes it, `leftovers` looks
into /proc for what is still there. Only `stoker run` and `stoker demo` come here.
"""
