"""The store on one Redis server, for clusters of several machines."""
