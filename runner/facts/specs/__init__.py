"""Specs: the content of run.yaml, cluster.yaml and runbooks, as frozen values. Nothing here reads a file."""
