"""Scenarios: strict YAML, validated and lowered to the settings of the simulation.

- ``load``        entry point: file, ``--set`` values and a trace → ``Scenario``
- ``yaml_tree``   strict YAML with the line and column of every key, and ``--set a.b=c``
- ``schema``      every key, its type, default and meaning
- ``section``     base of all sections: frozen structs, checked by msgspec
- ``quantities``  fields with units
- ``validation``  the first error of a scenario, as one line with its location
- ``machines``    number and roles of machines, and ``machines[k]`` merged over the common settings
- ``filling``     defaults that depend on other keys: paths, trace, router, model; every value written out
- ``release_defaults`` keys that an engine's release fills
- ``gpu_memory``  blocks and context that GPU memory holds: ``capacity: auto``, ``max_model_len``
- ``channels``    assignment of channels to edges
- ``effects``     refusal of settings that could not have an effect
- ``lowering``    to ``ClusterSettings``
- ``resolved``    the scenario with every default as YAML, and the hash of the settings that decide a run
- ``cost``        the cost of a run at given prices
- ``requests``    the trace or the generated workload
- ``kv_copies``   copies of KV on ranks and in tiers, and whose bytes a size counts
- ``token_capacities`` capacities in tokens as blocks
- ``launch``      engines' launch lines as scenarios, and scenarios as launch lines
- ``engine_effects`` engine, context-window, stage and rank settings without effect, on each machine
- ``engine_tiers`` tiers below the GPU with an engine's own semantics
- ``execute``     from a checked scenario to a finished run in its directory
- ``fleet``       the ``fleet`` section as settings, and its conflicts with other sections
- ``fleet_events`` fleet events in order of time
- ``cluster_sections`` the sections ``tenants``, ``cluster.pool``, ``fleet`` and ``models``
- ``idle``        settings that one scenario of several cannot use
- ``json_schema`` the JSON Schema of a scenario, for completion and checks in editors
- ``key_list``    every key of a scenario with its default and meaning, as ``kvsim help scenario`` prints it
- ``measure``     the ``measure`` section as settings of the metrics package
- ``objectives``  the ``slo`` section as the limits of the summary
- ``key_suggestions`` suggestions for an unknown key: an engine's flag, or a key of another section
- ``policy_kinds`` keys that name a policy
- ``policy_names`` policies that a scenario names: plug-ins' files, unknown and broken ones
- ``machine_sections`` the sections ``tiers`` and ``replica`` of a machine
- ``presets``     scenarios that come with the package
- ``request_effects`` tenants, models, adapters and hints of rows that could not have an effect
- ``router_section`` the section ``router`` of a scenario
- ``served_model`` the language model that a scenario serves: formats, cache groups, and its step times' model
- ``shared_pool`` a shared pool node of a scenario as settings
- ``speculation`` ``replica.speculation``
- ``step_time_source`` the source of a run's step times and its stated error
- ``subject``     a one-line summary of a scenario: model, GPUs, tiers, block, requests, router
- ``trace_section`` the section ``trace``: requests from a file, and changes to them
- ``workload_defaults`` a generated workload with every default of its kind written out
"""

import kvcache_sim.base.values  # noqa: F401 - msgspec, before any section is defined
