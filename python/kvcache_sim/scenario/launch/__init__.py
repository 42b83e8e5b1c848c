"""Engines' launch lines as scenarios, and scenarios as launch lines.

- ``line``      parser of a launch line: engine, model, flags
- ``flags``     tables of each engine's flags, variables and connectors, and the settings that they become
- ``making``    a scenario under construction, and the flags without a setting
- ``parallel``  degrees of parallelism: GPUs, ranks, machines and stages
- ``names``     a line's model in the catalogue, the formats of its name, and its GPU
- ``one_kind``  vLLM without its hybrid KV cache manager
- ``weights``   the format of the weights, by flag or by the name
- ``tiers``     the tiers below the GPU: offloading, LMCache, HiCache, connectors
- ``to_scenario``  a launch line as a commented scenario
- ``to_line``   a resolved scenario as a launch line
- ``drafts``    flags of speculative decoding to ``replica.speculation``, and back
"""
