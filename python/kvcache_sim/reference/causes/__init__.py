"""Slow references of the causes of misses, block by block.

- ``engine``  why a block of a prompt was missed in a replay
"""
