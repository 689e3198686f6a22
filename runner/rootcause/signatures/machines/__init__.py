"""Signatures of machines: the kernel, parts, management controllers."""
