"""Detect: volatile signals in, findings out. Soft state: after a restart it starts afresh and costs at most one limit's delay.

Pure and told the time. A detector never decides; it says what it saw, for how long, and about whom.
"""
