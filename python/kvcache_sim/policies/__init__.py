"""Eviction policies: their table, names and settings, and plug-ins.

- ``definition``    the printed definition of a policy
- ``engine_modes``  engine classes that each mode reproduces, and the number of recorded rows behind it
- ``plugins``       policies written outside the package
- ``resolve``       parser of the text after ``--policy``
- ``tail_lru``      T-LRU on a tier of a timed run
- ``tier_orders``   the eviction orders of a machine's tiers from the names of policies
"""
