"""Losses and scores of a short log from which nothing was learned."""
