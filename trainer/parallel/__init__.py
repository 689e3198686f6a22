"""One rank among others: its coordinates, device and process groups, the sharding of parameters, and DeepSpeed's engine."""
