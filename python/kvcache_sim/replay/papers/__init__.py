"""Eviction policies of papers that know more of a request than its blocks, replayed without time.

- ``leaf_cache``      a prefix cache of single blocks whose leaves go by labels
- ``workload_aware``  KVCache in the wild: classes of requests and how soon they come again
- ``tail_lru``        T-LRU: blocks that a prompt's limit does not need
- ``cache_ttl``       CacheTTL (Continuum): sessions that wait for a tool are pinned
- ``kvflow``          KVFlow: steps to the next use of an agent
- ``learned``         LPC: a prediction whether a conversation goes on, an oracle as its bound
- ``compare``         each of these beside LRU on one trace
- ``hybrid_cost``     FLOPs and bytes of a hybrid model's prefixes
- ``marconi``         Marconi: which states of a hybrid model are kept, and which of them go
- ``marconi_replay``  it beside a state every block, and beside LRU
"""
