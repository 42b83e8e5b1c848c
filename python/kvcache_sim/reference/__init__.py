"""The slow references in plain Python, imported by tests and by name only.

- ``causes``    slow references of the causes of misses, block by block
- ``digest``    the rolling hash over semantic records, in Python: the reference of the native one (I11)
- ``engines``   real engines' cache managers, rule by rule, in pure Python
- ``policies``  the eviction policies block by block, and their replay
- ``records``   what a store keeps of what happened
- ``store``     the block store, block by block, in plain Python
"""
