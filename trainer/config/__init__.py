"""Configuration: a training's settings, their limits, and what they would cost. Standard library only."""
