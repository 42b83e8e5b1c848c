"""The names of ``import kvcache_sim as kv``; ``kvcache_sim/__init__.py`` lists them.

- ``calls``       arguments checked, failures typed
- ``settings``    keyword arguments, nested or dotted, laid over a scenario
- ``scenario``    ``Scenario``: every setting, checked
- ``traces``      requests from files, generators, arrays and data frames
- ``simulate``    one simulation
- ``run``         ``Run``: its figures, tables, pictures; ``load_run``
- ``unsaved``     a run in memory, as reports read one
- ``arrow``       columns as Arrow tables
- ``plot``        ``Plot``: one picture
- ``comparing``   runs against the first of them
- ``explaining``  the main causes of a run's results
- ``replays``     caches without time: one policy, or the hit rate at every size
- ``sweeping``    many settings of one scenario
- ``html``        HTML for notebooks
- ``session``     agents' sessions on a provider's prompt cache
- ``sizing``      the load that configurations hold
- ``optimizing``  searches for the best settings
"""
