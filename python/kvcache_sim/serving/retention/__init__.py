"""Retention hints of a trace's rows: the session is over, move the blocks down, a time to live.

- ``hints``  obeys them when a request finishes
"""
