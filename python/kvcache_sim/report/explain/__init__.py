"""Why a run came out as it did, in plain sentences with the numbers.

A sentence is one function of a ``Case`` that returns it, or None where its cause is absent; ``sentences``
lists them all. ``story`` tells one request event by event.
"""
