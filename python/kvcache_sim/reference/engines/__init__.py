"""Real engines' cache managers, rule by rule, in pure Python: the references of the core's ``exact`` room.

``block_keys`` names the blocks of a request, ``vllm_pool``, ``sglang_tree``, ``offload_lru`` and
``offload_arc`` are one manager each, and ``replays`` runs a trace through them or through the core.

- ``copy_orders``            copies that a store decides and the channels of its machine carry
- ``group_manager``          vLLM's manager of several KV cache groups in one pool
- ``group_pool``             one pool of blocks for several KV cache groups, block by block
- ``group_replay``           requests through the reference of vLLM's manager of several KV cache groups
- ``group_rules``            what each kind of KV cache group finds, drops and keeps
- ``group_store``            vLLM's pool of several cache groups as a machine's store, in plain Python
- ``hicache_storage``        HiCache's storage below the host (L3)
- ``hicache_storage_store``  HiCache's store above a storage (L3)
- ``hicache_store``          SGLang's default tree with HiCache's host tier, as a timed machine's store
- ``in_tokens``              what SGLang's own scheduler asks of its tree, in tokens and by request
- ``leased_store``           what the stores of engines do alike, in plain Python
- ``leases``                 the leases of an engine's store
- ``lmcache_replay``         LMCache's CPU and disk tiers by lists, one request after another (LMCache 0.5.6)
- ``lmcache_store``          vLLM's block pool with LMCache's CPU and disk tiers below
- ``offload_access``         what a request did with a key of vLLM's CPU offloading tier
- ``offload_replay``         requests one after another against the reference of vLLM's CPU offloading tier
- ``offload_tier``           vLLM's CPU offloading tier (0.33.0, ``kv_offload/cpu``) in plain Python
- ``offloaded_groups``       vLLM's pool of several cache groups with its CPU offloading tier below
- ``offloaded_store``        vLLM's block pool with its CPU offloading tier below, as a timed machine's store
- ``page_store``             what the references of SGLang's trees do alike
- ``pool_copies``            copies under way between a pool of blocks and the tier below it
- ``pool_store``             vLLM's block pool as a machine's store, in plain Python
- ``radix_store``            SGLang's radix tree as a machine's store, in plain Python
- ``requests``               what the references replay
- ``sglang_replay``          requests through the reference of SGLang's radix tree, times ignored
- ``tiered_groups``          the tree's pool of several cache groups over a tier
- ``unified_replay``         requests through the reference of SGLang's default tree, times ignored
- ``unified_tree``           SGLang's default tree with HiCache, page by page
- ``vllm_offload_replay``    requests through the references of vLLM's block pool and
- ``vllm_replay``            requests through the reference of vLLM's block pool, times ignored
"""
