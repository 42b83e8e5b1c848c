"""Engines' launch lines as scenarios, and scenarios as launch lines.

- ``line``      parser of a launch line: engine, model, flags
- ``flags``     tables of each engine's flags and the settings that they correspond to
- ``making``    a scenario under construction, and the flags without a setting
- ``names``     a line's model in the catalogue, the formats of its name, and its GPU
- ``one_kind``  vLLM without its hybrid KV cache manager
- ``weights``   the format of the weights, by flag or by the name
- ``lower_tiers``  the tiers of LMCache's variables and of SGLang's ratio
- ``to_scenario``  a launch line as a commented scenario
- ``to_line``   a resolved scenario as a launch line
- ``drafts``    flags of speculative decoding to ``replica.speculation``, and back
"""
