"""Step times from the measured kernels of ``aiconfigurator-core`` (extra ``hardware``), without the network.

``deployment`` parses a name, translates names and repairs dtypes, ``kernels`` calls the library, ``sampling``
turns its answers into a table, ``sampled`` is the table and its cache file, ``source`` is the entry point.

- ``other_links``  a table of measured kernels with its all-reduces replaced by those of other links
- ``library``      facts about the library that do not need its import
"""
