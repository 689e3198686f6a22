"""Facts: the frozen words that stages exchange. Standard library only, no clock, no I/O, no logic beyond their own form.

Everybody may import facts; facts import nothing but each other. What crosses a stage, the store or the journal is one of
the values defined here, and `wire` is the only place that knows how they look as bytes.
"""
