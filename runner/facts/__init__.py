"""Facts: the frozen values that stages exchange. No clock, no I/O, no logic beyond their own form.

Every room may import facts; facts import each other, msgspec and the standard library. What crosses a stage, the store or the
journal is one of the values defined here, and `wire` alone knows their bytes.
"""
