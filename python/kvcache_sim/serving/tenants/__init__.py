"""Tenants that share a fleet: who is let in next, how much a second, how much of the caches each may keep.

- ``settings``     weights, classes and quotas
- ``gate``         requests wait here until their tenant's turn and tokens have come
- ``cache_quota``  blocks of a tenant beyond its quota are dropped
"""
