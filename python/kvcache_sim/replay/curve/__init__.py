"""The hit rate at every capacity.

- ``steps``     a staircase: how much is reached by each capacity, exact at every one
- ``hits``      the curve of least recently used from one pass, in blocks and in tokens
- ``landmarks`` the knee, the working set, the footprint
- ``sessions``  the same by session, and reuse within a session apart from reuse across
- ``tiers``     what a lower tier adds below an upper one
- ``sample``    the curve from a sample of the ids, with an error bound
- ``others``    other policies and Belady's ceiling at chosen capacities
"""
