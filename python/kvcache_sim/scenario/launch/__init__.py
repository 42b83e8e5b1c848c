"""Engines' launch lines as scenarios, and scenarios as launch lines.

- ``pasted``    the text: an argument, a file, the standard input
- ``deployment``  the workers of a text, their roles and their router
- ``documents``   containers of YAML documents
- ``shell``, ``shell_words``, ``arithmetic``  commands of shell text, as a shell reads them
- ``starts``    where an engine's arguments begin, and its release
- ``line``      launch lines: engine, model, flags, release
- ``argv``      arguments as an engine's parser reads them
- ``named_files``  files of options that a text names
- ``echo``      what is shown of a text: one line, without secrets
- ``pools``     several lines as one scenario
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
