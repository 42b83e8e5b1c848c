"""Tenants that share a fleet: their order of admission, rate limits and cache quotas.

- ``settings``     weights, classes and quotas
- ``gate``         the queue of requests until their tenant's turn
- ``cache_quota``  dropping of a tenant's blocks beyond its quota
"""
