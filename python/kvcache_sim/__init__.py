"""kvsim: a discrete-event simulator of KV-cache and prefix-cache behavior in LLM serving.

``import kvcache_sim as kv`` provides the names in ``__all__`` (``docs/how-to/python.md``); each is imported
at its first use, so that the import itself is cheap.

The layers of the package, top to bottom; imports only go down:

- ``cli``         one file per verb: parse, call, print
- ``api``         the Python API: scenarios, runs, sweeps, replays
- ``extras``      a simulated cluster in real time; sweeps, sizing and experiments
- ``report``      reports of finished runs
- ``scenario``, ``simulation``  validated YAML in, a finished ``Run`` out
- ``metrics``     measurements: columns with units, recorder, summary
- ``serving``     sequences, batch, scheduler, replica, router, cluster
- ``spec``        the specification: a readable simulator, run by ``--engine spec``
- ``replay``      caches without time: engines' own caches, the hit curve, causes of misses
- ``cache``       block store, tiers, moves, session and prefix views
- ``channels``, ``policies``  transfers of KV and their times; eviction, plug-ins of every kind
- ``workload``, ``model``  requests; times and sizes of the hardware and models
- ``engine``      the event loop
- ``base``        the ground floor: errors, units, values, output, tiers, random streams
"""

__version__ = "0.2.0"

#: Public name → the module that defines it. ``__init__.pyi`` repeats it for type checkers.
_NAMES = {
    "Comparison": "api.comparing",
    "Capacity": "api.sizing",
    "CacheReplay": "api.replays",
    "Curve": "api.replays",
    "Explanation": "api.explaining",
    "InputOutputError": "base.errors",
    "KvsimError": "base.errors",
    "Optimum": "api.optimizing",
    "OutputExistsError": "base.errors",
    "Plot": "api.plot",
    "Printed": "cli.called",
    "Run": "api.run",
    "RunOptions": "simulation.options",
    "Scenario": "api.scenario",
    "Session": "api.session",
    "Sweep": "api.sweeping",
    "Trace": "workload.trace",
    "TraceError": "base.errors",
    "UsageError": "base.errors",
    "cachesim": "api.replays",
    "capacity": "api.sizing",
    "command": "cli.called",
    "compare": "api.comparing",
    "curve": "api.replays",
    "explain": "api.explaining",
    "generate": "api.traces",
    "load_run": "api.run",
    "make_trace": "api.traces",
    "optimize": "api.optimizing",
    "read_trace": "api.traces",
    "session": "api.session",
    "simulate": "api.simulate",
    "sweep": "api.sweeping",
}

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> object:
    """Import a public name at its first use."""
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names."""
    return [*__all__, "__version__"]
