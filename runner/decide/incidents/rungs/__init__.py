"""Rungs: what each verb of a page does. The ladder chooses a rung and calls its handler, which adds records to the decision.

A handler never chooses another rung. One that cannot do what it is to do writes down why.
"""
