"""Sequences, the running batch, the scheduler, the replica, the router and the cluster."""
