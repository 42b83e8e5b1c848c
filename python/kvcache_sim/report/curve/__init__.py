"""``kvsim curve``: the hit rate at every capacity.

- ``build``    the figures as one document, ready for JSON
- ``text``     the same as a table for people, and as CSV
- ``groups``   the hit rate by size of a model of windows, chunks or states, jointly and by group
- ``sizes``    capacities as options: blocks, or bytes where a model gives the bytes of a token
- ``write``    writes the curve to files, by their suffix
"""
