"""The hit rate at every capacity.

- ``steps``     a step function of capacity; its knee and working set; a lower tier
- ``hits``      the curve of least recently used from one pass, in blocks and in tokens
- ``sessions``  the same by session, and reuse within a session apart from reuse across
- ``sample``    the curve from a sample of the ids, with an error bound
- ``others``    other policies and Belady's upper bound at chosen capacities
"""
