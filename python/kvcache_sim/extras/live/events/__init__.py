"""KV events as vLLM 0.33 publishes them, so that routers' indexers follow a simulated fleet.

- ``hashes``     vLLM's block hashes
- ``layout``     events as MessagePack: maps, or the arrays of older releases
- ``source``     changes of a machine's stores, as events
- ``publisher``  batches on a ZMQ socket, with sequence numbers and a replay socket
- ``announcer``  publishes the changes of a fleet's caches
"""
