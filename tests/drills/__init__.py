"""Every drill on a real cluster, beside an undisturbed run: `make drills` prints what Stoker made of each. Not part of CI."""
