"""The pager: how a page gets from the supervisor to people, behind the one door `runner.act.pages`.

`outbox` is pure: what waits, for which address, when it is due, what repeats. `sender` is the thread that persists it in the store
and has pages sent. `delivery` is the program that talks to one address, in a process of its own with a deadline: what hangs there
holds nothing here. No address leaves the process that read it, except to that program's standard input.
"""
