"""A live engine's cache compared with the hits of other caches, from its KV events.

- ``feed``       batches from sockets, missed batches replayed
- ``following``  the kept lookups of each engine
- ``caches``     the other caches: the replay engines over the kept lookups
- ``causes``     why the engine missed what it computed
- ``capture``    batches on disk, written and read, without tokens, hashes salted
- ``watch``      a line every few seconds, until a signal or the end of a capture
"""
