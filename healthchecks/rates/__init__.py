"""Rates of devices: series of windows, floors by model of GPU, and how busy others keep the node meanwhile. For several checks."""
