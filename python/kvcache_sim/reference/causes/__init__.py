"""Slow references of the causes of misses, block by block.

- ``engine``  why a block of a prompt was missed in a replay
- ``timed``   why prompt tokens were missed in a timed run: the reference of ``_core.timed_miss_tokens``
"""
