"""The store in memory, with faults on demand, for tests and the simulator."""
