"""Eviction policies: one table of them, what their names and settings mean, and plug-ins."""
