"""What ``import kvcache_sim as kv`` gives; ``kvcache_sim/__init__.py`` lists the names.

- ``settings``    keyword arguments, nested or dotted, laid over a scenario
- ``scenario``    ``Scenario``: every setting, checked
- ``traces``      requests from files, generators, arrays and data frames
- ``simulate``    one simulation
- ``run``         ``Run``: its figures, tables, pictures; ``load_run``
- ``unsaved``     a run in memory, as reports read one
- ``arrow``       columns as Arrow tables
- ``plot``        ``Plot``: one picture
- ``comparing``   runs against the first of them
- ``explaining``  why a run came out as it did
- ``replays``     caches without time: one policy, or the hit rate at every size
- ``sweeping``    many settings of one scenario
- ``html``        what notebooks show
- ``sizing``      the load that configurations hold, in Python
"""
