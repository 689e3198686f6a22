"""Commands about runs: start and follow one, stop it, change its learning rate, break it on purpose."""
