"""Nodes: life cycle, admission checks, probes, failure domains, drain and spares. Pure."""
