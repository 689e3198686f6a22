"""Commands about nodes and hardware: show them, and take them out of service or back."""
