"""Routers: which machine takes a request. A policy is one class and one row in ``registry.ROUTERS``.

- ``contract``          the ``Router`` protocol and what it may look at
- ``index``             the router's own late and bounded index, false and missed hits counted
- ``registry``          policy name → constructor; ``file.py:Name`` plug-ins
- ``views``             makes what routers look at, and loads as old as the last poll
- ``report``            what engines tell; ``prompt_blocks``: prompts as integers
- ``prefix_index``      what gateways keep of what they sent
- ``scorers``           what ``weighted`` adds up
- ``prefix``, ``cache_aware``, ``weighted``, ``production_stack``, ``dynamo_kv``,
  ``vllm_dp``           the policies
- ``in_core``           rules of routing that the core decides by without asking Python
- ``regret``            routing regret: what each choice lost against the best machine for that request
"""
