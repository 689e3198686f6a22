"""Signatures of what programs say when they fail, by what it is about, and of what they survive."""
