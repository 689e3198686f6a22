"""`stoker watch-only`: a run that Stoker did not launch, looked at and never touched."""
