"""Isolation: who is bad among nodes that are measured alone and in pairs. Pure.

`isolation.next_step` is the only entry: it asks for a round of measurements, or judges. It keeps nothing between calls, so that a
supervisor that takes over goes on with the results so far. It never measures, and never acts on its verdict.
"""
