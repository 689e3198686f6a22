"""Faults on purpose: drills that an operator requests, and plans of injected faults for tests. Unused without either."""
