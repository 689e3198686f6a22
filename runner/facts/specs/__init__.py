"""Specs: what run.yaml, cluster.yaml and runbooks say, as frozen values. Nothing here reads a file."""
