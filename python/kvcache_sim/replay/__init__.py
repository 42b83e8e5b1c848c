"""Caches without time: engines' own caches, prefix replays, the hit curve, causes of misses."""
