"""Step times from the measured kernels of ``aiconfigurator-core`` (extra ``hardware``), without the network.

``names`` translates names and repairs dtypes, ``deployment`` reads a spelling, ``kernels`` asks the library,
``sampling`` turns its answers into a table, ``table_cache`` keeps it, ``source`` is the door.

- ``other_links``  a table of measured kernels with its all-reduces taken out and those of other links put in
- ``sampled``      a table made of another source's times
- ``rests``        what the linear terms miss of a source, sampled on grids
- ``bends``        where a source's times by token count bend: halved until straight lines meet them
"""
