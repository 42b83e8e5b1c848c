"""The ground floor: modules that every other package may use, and that use none of them.

- ``errors``         refusals of one line, with position and exit code
- ``values``         frozen dataclasses
- ``units``          quantities with their unit: sizes, rates, times
- ``output``         output files that appear whole or not at all
- ``disk``           every change of a file
- ``file_lock``      a lock between processes, on a file
- ``regular_files``  reading of regular files alone, whole
- ``addresses``      hosts and ports as verbs take them
- ``stop_signals``   signals that end a command
- ``rows``           registries whose rows are imported when they are chosen
- ``spelling``       suggestions for unknown names
- ``tier_table``     the table of tiers
- ``tiers``          what follows from the table: edges, names, keys
- ``rng``            named random streams of one seed
"""
