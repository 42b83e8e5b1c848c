"""A validated scenario: YAML in, settings of the floors below out.

- ``load``        the door: file, ``--set`` values and a trace → ``Scenario``
- ``yaml_tree``   strict YAML with the line and column of every key
- ``overrides``   ``--set a.b=c``
- ``schema``      every key, its type, default and meaning
- ``section``     what its sections have in common
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
- ``repeats``     the seeds of repeated runs
- ``requests``    the trace or the generated workload
- ``starter``     what ``kvsim init`` prints
- ``launch``      engines' launch lines as scenarios, and back
"""
