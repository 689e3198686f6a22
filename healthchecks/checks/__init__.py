"""The checks: one module each, which ends in its declaration `CHECK`. A module that is put here is a check.

A check does not import another one. At module level it imports the standard library and psutil only.
"""
