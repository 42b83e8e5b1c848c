"""Step times from the measured kernels of ``aiconfigurator-core`` (extra ``hardware``), without the network.

``deployment`` reads a spelling, translates names and repairs dtypes, ``kernels`` asks the library,
``sampling`` turns its answers into a table, ``sampled`` is that table and keeps it, ``source`` is the door.

- ``other_links``  a table of measured kernels with its all-reduces taken out and those of other links put in
- ``library``      what can be told of the library without importing it
"""
