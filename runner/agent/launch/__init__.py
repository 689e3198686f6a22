"""Launch: from a launch plan to running ranks, through the keeper, with preloaded modules and free devices."""
