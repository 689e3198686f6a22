"""A large fleet on one machine: a real supervisor, a real Redis, and agents whose sessions are real and whose ranks are not.

`python -m bench.fleet` measures, `python -m bench.fleet.agents` plays agents, many in a process. What an agent costs on its own
node is measured elsewhere (`bench/supervision.py`); here, agents are load.
"""
