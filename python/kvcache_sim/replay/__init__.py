"""Caches without time: engines' own caches, prefix replays, the hit curve, causes of misses.

- ``cachesim``         one policy at one capacity, with its upper bounds
- ``engine_requests``  requests of an engine replay in the core's form; block keys: names of their blocks
- ``engine_tiers``     replays of engines with lower tiers of their own, and of LMCache's server
- ``group_settings``   KV cache groups of a replay of vLLM's pool, from the options of the user
- ``hosted``           replays of providers' prompt caches
- ``kv_groups``        replays of vLLM's manager of several KV cache groups
- ``miss_causes``      the causes of a miss: the list of them, each with its meaning
- ``miss_tables``      the misses of a replay by cause: its summary, and its table of requests
- ``policy_check``     ``kvsim policies check``
- ``policy_misses``    causes of misses in the replay of an eviction policy
- ``prompt_blocks``    a trace's prompts cut into blocks
- ``request``          a trace's requests in file order through one cache
- ``streamed``         one policy on a long trace, row by row
- ``upper_bounds``     the hits that no policy can exceed
"""
