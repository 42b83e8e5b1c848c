"""Routers choose the machine of a request. A policy is one class and one row in ``registry.ROUTERS``.

- ``contract``          the ``Router`` protocol and the view that it reads
- ``affinity``          sessions or siblings bound to machines, in front of a policy
- ``index``             the router's own delayed and bounded index, with counts of false and missed hits
- ``registry``          policy name → constructor; ``file.py:Name`` plug-ins
- ``views``             construction of the view, and loads as old as the last poll
- ``report``            loads that engines report; ``prompt_blocks``: prompts as integers
- ``prefix_index``      gateways' index of the prompts that they sent
- ``scorers``           the scores that ``weighted`` adds up
- ``prefix``, ``cache_aware``, ``weighted``, ``production_stack``, ``dynamo_kv``,
  ``vllm_dp``           the policies
- ``gateway_rules``     Dynamo's rules of 2026, evaluated by the core
- ``in_core``           routing rules that the core applies without calling Python
- ``uncomputed``        prompt tokens that machines have still to compute
- ``regret``            routing regret: the loss of each choice against the best machine for that request
"""
