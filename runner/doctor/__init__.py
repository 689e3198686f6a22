"""`stoker store doctor`: examines a store and its server, one verdict of PASS, FAIL or UNKNOWN per property.

It reads and measures; it never repairs.
"""
