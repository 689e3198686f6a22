"""Integrity: silent corruption is found because ranks hold copies of the same numbers; digests and majorities name the rank."""
