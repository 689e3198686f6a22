"""A run's numbers while it runs: heartbeats to the records that `numerics` judges, across attempts and supervisors."""
