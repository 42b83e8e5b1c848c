"""Routers: which machine takes a request. A policy is one small file and one row in ``registry.ROUTERS``.

- ``contract``          the ``Router`` protocol and what it may look at
- ``look``              found blocks of every machine in one call
- ``index``             the router's own late and bounded index, false and missed hits counted
- ``ties``              equal machines take turns
- ``registry``          policy name → constructor; ``file.py:Name`` plug-ins
- ``round_robin``, ``random_choice``, ``least_loaded``, ``session_affinity``, ``longest_prefix``,
  ``prefill_cost``, ``overlap_cost``    the policies
"""
