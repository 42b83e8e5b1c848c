"""The slow references in plain Python, imported by tests and by name only."""
