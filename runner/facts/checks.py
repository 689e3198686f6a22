"""Checks: the names of the health checks that a cluster may ask its nodes to pass. `healthchecks.coverage` has what they do."""

from __future__ import annotations

# In the order in which they run; a test compares them with those that there are.
CHECK_NAMES = (
    "clock",
    "processes",
    "disk_space",
    "shared_memory",
    "memory",
    "loopback",
    "kernel_log",
)
