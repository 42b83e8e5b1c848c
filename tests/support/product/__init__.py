"""Functions and classes of the product that tests of several folders use, each imported here alone.

A name that changes in the product changes here; tests keep theirs.
Files: ``live``, ``machines``, ``models``, ``reports``, ``scenarios``, ``spec``, ``sweeps``, ``traces``.
"""
