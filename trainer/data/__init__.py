"""Training data: where the text comes from, and the batch of each step as a pure function."""
