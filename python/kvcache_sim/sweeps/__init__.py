"""Many runs: cells, workers, results that survive a crash.

- ``space``        which settings a study tries: grid, list, zip, random
- ``interval``     a range or a choice of values, units kept
- ``study``        ``sweep.yaml`` read
- ``plan``         the study laid out as content-addressed cells
- ``cell``         one cell and its record
- ``coordinator``  runs the cells that are not finished yet on a runner, records each
- ``supervisor``, ``worker``, ``pipe``  the local runner: reused worker processes with limits
- ``ray_runner``  the same cells on a Ray cluster
- ``stop``         SIGINT, SIGTERM: a state that can be resumed
- ``store``, ``lock``, ``tables``  the sweep directory: records, quarantine, SQLite, Parquet, CSV
- ``merge``        shards back into one sweep
- ``estimate``     what it will cost
- ``simulation``   a row of settings as a scenario, a cell as a simulation
"""
