"""Many runs: cells, workers, results that survive a crash.

- ``space``        which settings a study tries: grid, list, zip, random
- ``study``        ``sweep.yaml`` read and laid out as content-addressed cells
- ``cell``         one cell and its record
- ``coordinator``  runs the cells that are not finished yet on a backend, records each
- ``supervisor``, ``worker``, ``pipe``  local backend: reused worker processes with limits
- ``ray_backend``  the same cells on a Ray cluster
- ``stop``         SIGINT, SIGTERM: a state that can be resumed
- ``store``, ``lock``, ``tables``  the sweep directory: records, quarantine, SQLite, Parquet, CSV
- ``merge``        shards back into one sweep
- ``estimate``, ``pareto``  what it will cost; which cells are best
"""
