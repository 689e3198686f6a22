"""Runbooks: one page for each fault. Front matter that the supervisor executes, prose that the operator on call reads; no logic.

It is a package only so that the wheel contains the pages. `runner.load` reads them; no module imports them.
"""
