"""The journal: every input and decision of a cluster, in order; its archive files, snapshots and high-water mark.

The supervisor appends under its lease; everyone else only reads.
"""
