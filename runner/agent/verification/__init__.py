"""Verification of checkpoints in the background: a share of a checkpoint's files is read by a child, for whatever time that takes.

The agent keeps the open tasks on disk, the child what it verified: neither an agent that dies nor a child that is killed makes
the node read a file twice. All access to the checkpoint's folder is the child's: a file system that hangs stops it alone.
"""
