"""All tables of a run whose every event is recorded, as lists."""

import numpy as np
from kvcache_sim.simulation import RunOptions
from kvcache_sim.simulation.simulation import Simulation

EVER = (0, 1 << 62)


def recorded(settings, trace, **options):
    """Return a fully checked simulation and its requests, events, series, token times and digests."""
    simulation = Simulation(settings, trace, RunOptions(check="full", record_window_ns=EVER, **options))
    run = simulation.run()
    tables = {}
    for of, table in (("requests", run.requests), ("events", run.events), ("series", run.series)):
        for name, column in table.items():
            tables[of, name] = column.tolist() if isinstance(column, np.ndarray) else texts(column)
    tables["itl"] = [run.itl_ns.values_ns.tolist(), run.itl_ns.counts.tolist()]
    tables["digests"] = [run.digest_events, run.digest_results, run.counters, run.end_ns]
    return simulation, tables


def texts(column):
    return [column.words[code] for code in column.codes]


def assert_recording_changes_nothing(settings, trace):
    """Return the tables of a recorded run, which a run that records less equals in all that it keeps."""
    _, full = recorded(settings, trace)
    run = Simulation(settings, trace, RunOptions()).run()
    assert [run.digest_events, run.digest_results, run.counters, run.end_ns] == full["digests"]
    kinds = full["events", "kind"]
    kept = [at for at, kind in enumerate(kinds) if kind in ("prefill_start", "prefix_cache_event")]
    for of, table in (("events", run.events), ("series", run.series)):
        for name, column in table.items():
            values = column.tolist() if isinstance(column, np.ndarray) else texts(column)
            recorded_values = full[of, name]
            if of == "events":
                recorded_values = [recorded_values[at] for at in kept]
            assert values == recorded_values, name
    return full
