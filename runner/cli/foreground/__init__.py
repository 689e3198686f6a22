"""A run in the foreground: it has a supervisor, a screen shows it, Ctrl-C ends it in order, no process is left behind.

`supervisor_child` starts and restarts the supervisor, `run_follower` is the loop, `screen` and
`changes` show the run, `summary` ends it, `leftovers` searches /proc for processes of the cluster.
`attach` shows a run that another command started. Only `stoker run`, `stoker demo` and `stoker attach` use it.
"""
