"""Decide: findings, signals and requests in, records out. Pure, with the time as an input, and the owner of the durable state.

Two doors: `Controller.decide(input, now)` changes nothing and returns records; `Controller.apply(record, now)` alone changes
state. Only the supervisor's turns and the simulator knock. Nothing here reads a clock, a file or a socket, and the same state
and input lead to the same records in any process.
"""
