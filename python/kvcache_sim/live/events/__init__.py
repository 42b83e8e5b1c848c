"""KV events as vLLM 0.33 publishes them, so that routers' indexers follow a simulated fleet.

- ``hashes``     block hashes as vLLM computes them
- ``layout``     events as MessagePack: maps, or the arrays of older releases
- ``source``     what a machine's stores did, as events
- ``publisher``  batches on a ZMQ socket, with sequence numbers and a replay socket
- ``announcer``  announces what the caches of a fleet do
"""
