"""kvsim: a discrete-event simulator of KV-cache and prefix-cache behaviour in LLM serving.

``import kvcache_sim as kv`` gives the names of ``__all__`` (``docs/how-to/python.md``); each is imported with
its first use, so that the import itself costs nothing.

The floors of the package, top to bottom; imports go down only:

- ``cli``         one file a verb: parse, call, print
- ``api``         what Python sees: scenarios, runs, sweeps, replays
- ``sizing``      how much load a configuration holds
- ``live``        a simulated cluster in real time: HTTP, metrics, KV events; recording, shadow caches
- ``report``, ``sweeps``  read finished runs; run many
- ``scenario``, ``simulation``  validated YAML in, a finished ``Run`` out
- ``metrics``     what was measured: columns with units, recorder, summary
- ``serving``     sequences, batch, scheduler, replica, router, cluster
- ``spec``        the specification: the simulator to read, run by ``--engine spec``
- ``replay``      caches without time: engines' own caches, the hit curve, causes of misses
- ``cache``       block store, tiers, moves, session and prefix views
- ``channels``, ``policies``  what carries KV and when it arrives; eviction, plug-ins of every kind
- ``workload``, ``model``  requests in; what things cost
- ``engine``      the event loop
- ``errors``, ``units``, ``rng``, ``tiers`` and their table ``tier_table``, ``values`` (frozen dataclasses)
- ``rows``, ``spelling``  registries whose rows are imported when asked for; what a wrong name may have meant
- ``output``, ``file_lock``  the one writer of files, and who may write
"""

__version__ = "0.2.0"

#: Public name → the module that defines it. ``__init__.pyi`` says the same to type checkers.
_NAMES = {
    "Comparison": "api.comparing",
    "Capacity": "api.sizing",
    "CacheReplay": "api.replays",
    "Curve": "api.replays",
    "Explanation": "api.explaining",
    "InputOutputError": "errors",
    "KvsimError": "errors",
    "OutputExistsError": "errors",
    "Plot": "api.plot",
    "Run": "api.run",
    "RunOptions": "simulation.options",
    "Scenario": "api.scenario",
    "Sweep": "api.sweeping",
    "Trace": "workload.trace",
    "TraceError": "errors",
    "UsageError": "errors",
    "cachesim": "api.replays",
    "capacity": "api.sizing",
    "compare": "api.comparing",
    "curve": "api.replays",
    "explain": "api.explaining",
    "generate": "api.traces",
    "load_run": "api.run",
    "make_trace": "api.traces",
    "read_trace": "api.traces",
    "simulate": "api.simulate",
    "sweep": "api.sweeping",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> object:
    """Import a public name with its first use."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
