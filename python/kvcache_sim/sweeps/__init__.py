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
- ``joint``        eviction × routing × capacity on one fleet, with what no policy and no router could exceed
- ``marconi_study`` Marconi beside a state every block and beside LRU
- ``optimize``     a search for the best settings under conditions: Optuna proposes, the sweep's cells answer
- ``paper_study``  a paper's policy beside LRU: on a trace, or on workloads of several seeds with their mean
- ``paper_workload`` the requests that a paper's policy is tried on without a trace
- ``single_run``   the command that runs one cell of a study alone
- ``worker_process`` one worker process as its supervisor sees it: the cell it runs, its limits, how it ended
"""
