"""Loss scales and skipped steps of a short log."""
