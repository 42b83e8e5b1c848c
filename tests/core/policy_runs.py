"""Runs of the core under any eviction policy or plug-in, against the specification over small models."""

from kvcache_sim.metrics.run import Run
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions, simulate
from kvcache_sim.workload.trace import Trace
from plain_plugins import PluginStore
from support.agreement import assert_same
from support.spec_models import simulation_class
from support.spec_store import WholeStoreSimulation


def run_with_models(settings: ClusterSettings, trace: Trace) -> Run:
    """Return the specification's run over its own store, in the orders of the models and of plug-ins."""
    block = {"block_size_tokens": settings.cache.block_size_tokens}
    own = {"plain_store": type("Store", (PluginStore,), block)}
    simulation = type("Simulation", (WholeStoreSimulation, simulation_class(settings)), own)
    run: Run = simulation(settings, trace, RunOptions(engine="spec-plain")).run()
    return run


def agree_with_models(settings: ClusterSettings, trace: Trace) -> Run:
    """Return the core's run, which the specification's run over the models equals."""
    native = simulate(settings, trace, options=RunOptions(check="full"))
    assert native.engine.name == "native"
    assert_same(native, run_with_models(settings, trace))
    return native
