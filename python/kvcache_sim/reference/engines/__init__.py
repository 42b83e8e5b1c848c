"""Real engines' cache managers, rule by rule, in pure Python: the references of the core's ``exact`` room.

``block_keys`` names the blocks of a request, ``vllm_pool``, ``sglang_tree``, ``offload_lru`` and
``offload_arc`` are one manager each, and ``replays`` runs a trace through them or through the core.
"""
