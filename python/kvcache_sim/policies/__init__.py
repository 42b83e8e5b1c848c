"""Eviction policies: one table of them, what their names and settings mean, and plug-ins.

- ``definition``    a policy's definition for people
- ``engine_modes``  which class of which engine each mode equals, and on how many rows of its integers
- ``page``          the table of policies on the page about them
- ``plugins``       policies written outside the package
- ``resolve``       what the text after ``--policy`` names
- ``tail_lru``      T-LRU on a tier of a timed run
- ``tier_orders``   the eviction orders of a machine's tiers from the names of policies
"""
