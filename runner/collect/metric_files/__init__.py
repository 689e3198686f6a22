"""Metric files: CSV, JSON and TensorBoard event files become step records."""
