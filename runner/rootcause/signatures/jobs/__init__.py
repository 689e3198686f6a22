"""Signatures of what starts and ends jobs: batch systems, Kubernetes, clouds, frameworks of workers, supervisors."""
