"""``kvsim curve``: the hit rate at every capacity.

- ``build``    the figures as one document, ready for JSON
- ``text``     the same as a table for people, and as CSV
- ``picture``  the same as SVG, PNG or HTML
"""
