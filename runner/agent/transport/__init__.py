"""Transport: the agent's connection to the store. Durable signals are spooled and resent; heartbeats may be lost."""
