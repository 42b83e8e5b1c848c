"""Many runs: cells, workers, results that survive a crash.

- ``space``        the settings that a study tries: grid, list, zip, random draws from ranges
- ``study``        ``sweep.yaml`` read, or a small study of the command line
- ``plan``         the study laid out as content-addressed cells, and its cost
- ``cell``         one cell and its record
- ``coordinator``  runs the cells that are not finished yet, records each; shards into one sweep
- ``supervisor``, ``worker``  the local runner: reused worker processes with limits
- ``processes``    worker processes and the time, as the local runner sees them
- ``ray_runner``  the same cells on a Ray cluster
- ``stop``         signals: a state that can be resumed
- ``store``, ``tables``  the sweep directory: records, quarantine, SQLite, Parquet, CSV
- ``simulation``   a row of settings as a scenario, a cell as a simulation
- ``optimize``     a search for the best settings under conditions: Optuna proposes, the sweep's cells answer
- ``single_run``   the command that runs one cell of a study alone
"""
