"""A validated scenario: YAML in, settings of the floors below out.

- ``load``        the door: file, ``--set`` values and a trace → ``Scenario``
- ``yaml_tree``   strict YAML with the line and column of every key
- ``overrides``   ``--set a.b=c``
- ``schema``      every key, its type, default and meaning
- ``section``     what its sections have in common: frozen structs, which msgspec checks
- ``quantities``  fields with units
- ``validation``  the first thing wrong, as one line with its place
- ``machines``    ``machines[k]`` laid over the common settings
- ``filling``     what is left open: paths, generator defaults, model
- ``gpu_memory``    ``capacity: auto``
- ``channels``    which channel carries which edge
- ``effects``     settings that could not have an effect are refused
- ``eviction``    the eviction policies that the rules of reuse have
- ``lowering``    to ``ClusterSettings``
- ``resolved``    every default written out, and the hash of what decides a run
- ``cost``        what a run costs at given prices
- ``requests``    the trace or the generated workload
- ``launch``      engines' launch lines as scenarios, and back
- ``cache_groups`` the KV cache groups of a scenario's model, where its rules of reuse have several
- ``engine_effects`` settings of an engine, its window, stages and ranks without effect, on each machine
- ``engine_tiers`` tiers below the GPU that follow an engine's own rules
- ``execute``     from a checked scenario to a finished run in its directory
- ``fleet``       a scenario's ``fleet`` section as settings, and where it could not be obeyed
- ``fleet_events`` what happens to a fleet in order of time
- ``cluster_sections`` the sections ``tenants``, ``cluster.pool``, ``fleet`` and ``models`` of a scenario
- ``idle``        settings that one scenario of several cannot use
- ``json_schema`` the JSON Schema of a scenario, by which editors complete and check it
- ``key_list``    every key of a scenario with its default and meaning, as ``kvsim help scenario`` prints it
- ``measure``     what a scenario measures, as the settings of the floor below
- ``objectives``  a scenario's ``slo`` section as the limits that the summary judges by
- ``key_suggestions`` what a key that a section lacks may have meant: an engine's flag, or another section's
  key
- ``policy_names`` settings that name a policy
- ``pools``       pools: which machines prefill, which decode, and what cannot be without both
- ``presets``     scenarios that come with the package
- ``read_settings`` a scenario's ``trace`` section as the reader's settings, and the block that its file is of
- ``request_effects`` tenants, models, adapters and hints of rows that could not have an effect
- ``record_window`` ``--record all[:FROM..TO]``: which part of a run is recorded in full
- ``replica_section`` the section ``replica`` of a machine
- ``router_section`` the section ``router`` of a scenario
- ``served_model`` the language model that a scenario serves, and whether its steps are timed as its own
- ``shared_pool`` a shared pool node of a scenario as settings
- ``speculation`` ``replica.speculation``
- ``subject``     what a scenario simulates, in one line: model, GPUs, tiers, block, requests, router
- ``tiers_section`` the section ``tiers``: what a machine keeps blocks on
- ``trace_section`` the section ``trace``: requests from a file, and what may be changed of them
- ``workload_defaults`` a generated workload with every default of its kind written out
"""

import kvcache_sim.values  # noqa: F401 - msgspec, before any section is defined
