"""A live engine's cache beside what other caches would have found, from its KV events.

- ``feed``       batches from sockets, what was missed replayed
- ``following``  the look-ups of each engine, as many as are kept
- ``caches``     the other caches: the replay engines over what is kept
- ``capture``    batches on disk, without tokens, hashes salted; ``read_capture``
- ``watch``      a line every few seconds, until a signal or the end of a capture
"""
