"""Runbooks: one page for each fault. Front matter that the supervisor executes, prose that the on-call reads; no logic.

This is a package only so that the pages travel in the wheel. `runner.load` reads them, nobody imports them.
"""
