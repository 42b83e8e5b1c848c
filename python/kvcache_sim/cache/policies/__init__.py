"""Eviction policies by name: the registry, and one small file a policy."""
