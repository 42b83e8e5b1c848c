"""Retention hints of a trace's rows: the session is closed, demote the blocks, a time to live.

- ``hints``  applies them when a request finishes
"""
