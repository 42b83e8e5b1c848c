"""Requests worked off in batches: rollouts of a training run, offline inference.

- ``settings``  settings of offline batches
"""
