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
- ``inline``       a small study on the command line: one scenario, a few settings to vary, no sweep file
- ``optimize``     a search for the best settings under conditions: Optuna proposes, the sweep's cells answer
- ``single_run``   the command that runs one cell of a study alone
- ``worker_process`` one worker process as its supervisor sees it: the cell it runs, its limits, how it ended
"""
