"""Routers: which machine takes a request. A policy is one small file and one row in ``registry.ROUTERS``.

- ``contract``          the ``Router`` protocol and what it may look at
- ``look``              found blocks of every machine in one call
- ``index``             the router's own late and bounded index, false and missed hits counted
- ``ties``              equal machines take turns
- ``registry``          policy name → constructor; ``file.py:Name`` plug-ins
- ``views``             makes what routers look at; ``scrapes``: loads as old as the last poll
- ``report``            what engines tell; ``prompt_blocks``: prompts as integers
- ``gateway_tree``, ``prefix_index``, ``active_blocks``    what gateways keep of what they sent
- ``hash_ring``, ``sent_lately``, ``scorers``    what several policies are made of
- ``round_robin``, ``random_choice``, ``least_loaded``, ``session_affinity``, ``power_of_two``,
  ``consistent_hashing``, ``longest_prefix``, ``prefill_cost``, ``overlap_cost``, ``cache_aware``,
  ``weighted``, ``kv_aware``, ``load_aware``, ``dynamo``, ``vllm_dp``    the policies
- ``in_core``           rules of routing that the core decides by without asking Python
- ``regret``            routing regret: what each choice lost against the best machine for that request
"""
