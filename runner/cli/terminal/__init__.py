"""`stoker watch`: a run or the fleet on the whole terminal, with keys for what a person looks up or decides next.

It reads what `stoker status` reads, once a second, and sends, after a question, the requests that `stoker approve` and `stoker
pause` send. It draws what `runner/cli/foreground/glance.py` says. The terminal is left as it was, however it ends.
"""
