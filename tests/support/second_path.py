"""Comparisons with the scheduler in Python, for the tests that still have them; they go with it."""

from __future__ import annotations

import numpy as np
from kvcache_sim.serving.replica.native import NativeReplica
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.simulation.simulation import Simulation

from support.recorded import recorded


def told_alike(settings, trace):
    """Return the tables of a run that the scheduler in Python equals, and one without records."""
    simulation, native = recorded(settings, trace)
    assert all(isinstance(r, NativeReplica) for r in simulation.replicas)
    stepped, plain = recorded(settings, trace, step_every_iteration=True)
    assert not any(isinstance(r, NativeReplica) for r in stepped.replicas)
    assert native == plain
    ahead = Simulation(settings, trace, RunOptions()).run()
    assert [ahead.digest_events, ahead.digest_results, ahead.counters, ahead.end_ns] == native["digests"]
    return native, ahead


def three_ways(settings, trace):
    """Return the counters of a run that single steps and the reference in Python equal."""
    native, run = told_alike(settings, trace)
    other = simulate(settings, trace, options=RunOptions(backend="python"))
    assert native["digests"] == [other.digest_events, other.digest_results, other.counters, other.end_ns]
    return run.counters


def agree(settings, trace):
    """Check that requests arrive in batches, and that single steps equal the run."""
    runs = []
    for options in (RunOptions(), RunOptions(step_every_iteration=True)):
        simulation = Simulation(settings, trace, options)
        assert simulation._comes_natively != options.step_every_iteration
        run = simulation.run()
        rows = {n: c.tolist() for n, c in run.requests.items() if isinstance(c, np.ndarray)}
        runs.append([rows, run.digest_events, run.digest_results, run.counters, run.end_ns])
    assert runs[0] == runs[1]
