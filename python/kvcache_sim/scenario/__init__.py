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
- ``gpu_room``    ``capacity: auto``
- ``channels``    which channel carries which edge
- ``effects``     settings that could not have an effect are refused
- ``eviction``    the eviction policies that the rules of reuse have
- ``simulated``   the choices that the simulation obeys; others are refused
- ``lowering``    to ``ClusterSettings``
- ``resolved``    every default written out, and the hash of what decides a run
- ``cost``        what a run costs at given prices
- ``requests``    the trace or the generated workload
- ``spec_engine`` the refusal of a scenario that the specification does not cover
- ``starter``     what ``kvsim init`` prints
- ``launch``      engines' launch lines as scenarios, and back
- ``cache_groups`` the KV cache groups of a scenario's model, where its rules of reuse have several
- ``context_window`` where the context window of a scenario, ``replica.max_model_len``, would have no effect
- ``engine_effects`` settings of an engine that could not have an effect, on each machine
- ``engine_tiers`` tiers below the GPU that follow an engine's own rules
- ``execute``     from a checked scenario to a finished run in its directory
- ``fault_draws`` the faults of a scenario's rates, drawn: each kind on each machine from a stream of its own
- ``fleet``       a scenario's ``fleet`` section as settings, and where it could not be obeyed
- ``fleet_events`` what happens to a fleet in order of time
- ``fleet_section`` the section ``fleet`` of a scenario
- ``host``        a measured host laid under the settings of a replica
- ``idle``        settings that one scenario of several cannot use
- ``json_schema`` the JSON Schema of a scenario, by which editors complete and check it
- ``key_list``    every key of a scenario with its default and meaning, as ``kvsim help scenario`` prints it
- ``measure``     what a scenario measures, as the settings of the floor below
- ``models``      where a scenario's models and adapters have no effect
- ``models_section`` the sections ``models`` and ``adapters`` of a scenario
- ``network``     edges between machines: who reads from whom over which channel
- ``objectives``  a scenario's ``slo`` section as the limits that the summary judges by
- ``other_words`` what a key that a section lacks may have meant: an engine's flag, or another section's key
- ``parallel``    ``replica.pp`` and ``replica.cp``
- ``policy_names`` settings that name a policy
- ``pool_section`` the section ``cluster.pool`` of a scenario
- ``pools``       pools: which machines prefill, which decode, and what cannot be without both
- ``presets``     scenarios that come with the package
- ``ranks``       ``replica.dp``: machines that are data-parallel ranks of one engine
- ``read_settings`` a scenario's ``trace`` section as the reader's settings
- ``record_window`` ``--record all[:FROM..TO]``: which part of a run is recorded in full
- ``replica_section`` the section ``replica`` of a machine
- ``retention``   a scenario's retention hints: put to its requests, and where they could not be obeyed
- ``router_effects`` settings of routers that cannot have an effect, and why
- ``router_section`` the section ``router`` of a scenario
- ``scaling_section`` the section ``fleet.scaling`` of a scenario, and the settings it stands for
- ``served_model`` the language model that a scenario serves
- ``shared_pool`` a shared pool node of a scenario as settings
- ``slow_channels`` channels that are slow or carry nothing for a time, by a fleet's plan and faults
- ``speculation`` ``replica.speculation``
- ``subject``     what a scenario simulates, in one line: model, GPUs, tiers, block, requests, router
- ``tenants``     where a scenario's tenants could not get what they are due
- ``tenants_section`` the section ``tenants`` of a scenario, and the settings it stands for
- ``tiers_section`` the section ``tiers``: what a machine keeps blocks on
- ``timed_model`` whether steps take as long as those of the model that is served
- ``trace_block`` the cache's block where a scenario leaves it open
- ``trace_section`` the section ``trace``: requests from a file, and what may be changed of them
- ``workload_defaults`` a generated workload with every default of its kind written out
"""

import sys
from typing import Any

# msgspec looks for typing_extensions before the standard library, which has all it needs from Python 3.11 on:
# without that a run of one request takes 13 M of some 900 M instructions less.
_modules: dict[str, Any] = sys.modules
_unwanted = _modules.setdefault("typing_extensions", None) is None
import msgspec as msgspec  # noqa: E402 - once, before any other module does

if _unwanted:
    del _modules["typing_extensions"]
