"""``kvsim curve``: the hit rate at every capacity.

- ``build``    the figures as one document, ready for JSON
- ``text``     the same as a table for people, and as CSV
- ``groups``   the hit rate by size of a model of windows, chunks or states, jointly and by group
- ``sizes``    capacities as people write them: blocks, or bytes where a model says what a token weighs
- ``write``    writes the curve to files, by their suffix
"""
