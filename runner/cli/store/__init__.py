"""Commands about the store and the cluster's token."""
