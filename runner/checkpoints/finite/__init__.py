"""Finite: whether the floating-point tensors of a checkpoint's files hold NaN or infinities, without torch and without unpickling.

The reader of a share asks where the tensors of a file lie (`layouts`), and hands each piece that it hashes to a scan (`file_scan`).
Nothing here decides what becomes of a checkpoint, and nothing here trusts a byte: what is malformed is reported as not covered.
"""
