"""Slow references of the causes of misses, block by block."""
