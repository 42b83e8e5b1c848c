"""A small scenario in which everything happens: two machines of three tiers, sessions that pause and return."""

from pathlib import Path

from kvcache_sim.metrics.run import Run
from kvcache_sim.metrics.summary import summarize
from kvcache_sim.scenario.load import Scenario, scenario_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions, simulate

BASE = """
seed: 3
workload:
  kind: conversational
  requests: 150
  arrivals: {process: poisson, rate_per_s: 6}
  turns: {kind: uniform, min: 2, max: 6}
  think_time: {kind: lognormal, median: 3s, sigma: 0.8, min: 1s, max: 60s}
  first_input_tokens: {kind: lognormal, median: 2000, sigma: 1.0, min: 64, max: 8192}
cache: {block_size: 64}
cluster: {machines: 2}
tiers: {gpu: {capacity: 400 blocks}, cpu: {capacity: 500 blocks}, disk: {capacity: 9000 blocks}}
replica: {max_num_seqs: 4}
"""
#: Loads that take long, of blocks that were written through.
SLOW_LINKS = (
    "channels.cpu-to-gpu.bandwidth=300MB/s",
    "tiers.gpu.capacity=160 blocks",
    "write.policy=through",
)


def load(*overrides: str, text: str = BASE, directory: Path | None = None) -> Scenario:
    """Return the scenario with ``--set`` values laid over it."""
    return scenario_from_text(text, "s.yaml", directory or Path.cwd(), overrides)


def run_scenario(scenario: Scenario, **options) -> Run:
    """Return the scenario's run."""
    return simulate(scenario.settings, read_requests(scenario), options=RunOptions(**options))


def run_with(*overrides: str, text: str = BASE, **options) -> Run:
    """Return the run of the scenario with ``--set`` values laid over it."""
    return run_scenario(load(*overrides, text=text), **options)


def summary_with(*overrides: str, text: str = BASE) -> dict:
    """Return the summary of such a run."""
    return summarize(run_with(*overrides, text=text), 64)
