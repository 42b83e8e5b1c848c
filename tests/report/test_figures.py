"""Every figure of ``summary.json`` has a definition in its table, and the page that the site makes has all of
them."""

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from kvcache_sim.base.tiers import KV_SOURCES, TIERS
from kvcache_sim.metrics.columns import FETCH_PARTS, OUTCOMES, TTFT_PARTS
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.figures import DEFINITIONS, FIGURES
from kvcache_sim.metrics.names import STABLE_METRICS
from kvcache_sim.metrics.percentiles import STATISTICS
from kvcache_sim.report.intervals.certainty import certainty
from kvcache_sim.scenario.execute import execute, wall
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from support.product.machines import reported_by
from support.tiered_scenario import load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs" / "site"))
from data_tables import read_table

#: Values of a placeholder in a figure's name; None: any name.
FAMILIES: dict[str, tuple[str, ...] | None] = {
    "<statistic>": STATISTICS,
    "<tier>": TIERS,
    "<place>": KV_SOURCES,
    "<ttft_part>": TTFT_PARTS,
    "<fetch_part>": FETCH_PARTS,
    "<outcome>": OUTCOMES,
    "<hit>": ("hit", "miss"),
    "<cause>": tuple(cause.name for cause in reported_by("timed")),
    "<gap>": None,
    "<class>": None,
    "<tenant>": None,
    "<model>": None,
    "<channel>": None,
    "<group>": None,
    "<figure>": None,
}

GROUPS = {"ONE": ("cluster.machines=1",), "FLAT": ("tiers.cpu=null", "tiers.disk=null")}
#: Together they show every figure: the name of a run, and its settings or groups of settings.
_RUNS = """
tiers, remote reads, a router's index, prices | fetch.lookup=cluster | router.policy=prefill-cost |
    router.index_blocks=300 | cost.gpu_hour=2 | measure.warmup=10% | slo={ttft: 1s, tpot: 30ms, e2e: 9s,
    classes: {late: {when: turn > 2, ttft: 2s}}}
pools and a context window | cluster.machines=3 | pools={prefill: 2, decode: 1} | replica.max_model_len=4096
one GPU with drafts | ONE | FLAT | replica.speculation={tokens: 2, mean_length: 2}
several cache groups | ONE | FLAT | model=gpt-oss-20b | cache={semantics: vllm, block_size: 64}
requests wait, a shared pool | workload.loop=closed | cluster.pool={capacity: unbounded}
a tier loses its copies | fleet={plan: [{at: 9s, do: lose-tier, machine: 0, tier: cpu}]}
a policy scales the fleet | fleet={scaling: {policy: requests, target: 4, most: 3, interval: 1s}, plan: [{at:
    3s, do: flush}]}
tenants | workload=null | workload={} | trace.path={tenants} | tenants={} | retention={}
models | workload=null | workload={} | trace.path={tenants} | models={field: tenant, of: {a: {}, b: {}}} |
    cluster.machines=2 | adapters={field: tenant}
a machine is lost | fleet={plan: [{at: 9s, do: lose, machine: 0}, {at: 9s, do: join}]}
one GPU | ONE | FLAT
an engine of ranks | FLAT | replica.dp=2
agents | workload=null | workload={kind: agentic, requests: 40}
a policy that is not built in | replica.queue_order=support.own_plugins:Queue
no time | ONE | FLAT | replica.instant=true
SGLang's scheduler | ONE | FLAT | replica.scheduler=sglang
vLLM's scheduler | ONE | FLAT | tiers.gpu.capacity=400 blocks | replica.scheduler=vllm | cache.semantics=vllm
vLLM's scheduler on two machines | FLAT | replica.scheduler=vllm | cache.semantics=vllm
"""


def runs() -> Iterator[tuple[str, tuple[str, ...]]]:
    for line in _RUNS.strip().replace("\n    ", " ").splitlines():
        name, *settings = line.split(" | ")
        yield name, tuple(one for setting in settings for one in GROUPS.get(setting, (setting,)))


RUNS = dict(runs())


@cache
def two_tenants() -> Path:
    """Return a trace of two requests whose rows name who sent them."""
    path = Path(tempfile.mkdtemp()) / "tenants.jsonl"
    row = {"timestamp": 0, "input_length": 512, "output_length": 3, "hash_ids": [0]}
    hints = {"a": 0, "b": 1}
    path.write_text(
        "".join(json.dumps({**row, "tenant": name, "retention": hints[name]}) + "\n" for name in "ab")
    )
    return path


@cache
def executed(*overrides: str) -> dict[str, Any]:
    scenario = load(*(one.replace("{tenants}", str(two_tenants())) for one in overrides))
    options = RunOptions(causes=True, schedule=scenario.model.replica.scheduler == "vllm", times=True)
    done = execute(scenario, read_requests(scenario), options)
    return done.summary | {"certainty": certainty(done, [done.summary]), "wall": wall()}


def summary_of(*overrides: str) -> dict[str, Any]:
    """Return the whole summary of a run that counts the causes of misses, as ``summary.json`` has it."""
    return json.loads(json.dumps(executed(*overrides)))


def shown(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every figure of a summary; rows of a list count under one name, ``row``."""
    if isinstance(node, Mapping):
        for name, value in node.items():
            if (*path, name) != ("definitions",):
                yield from shown(value, (*path, name))
    elif isinstance(node, list) and node and isinstance(node[0], Mapping):
        for row in node:
            yield from shown(row, (*path, "row"))
    elif node != []:
        yield path


def is_of(figure: Figure, path: tuple[str, ...]) -> bool:
    parts = figure.name.split(".")
    return len(parts) == len(path) and all(
        FAMILIES[part] is None or name in FAMILIES[part] if part in FAMILIES else name == part
        for part, name in zip(parts, path, strict=True)
    )


def undefined(summary: Mapping[str, Any]) -> list[str]:
    """Return the figures of a summary that no row, or more than one, defines."""
    return [
        ".".join(path)
        for path in dict.fromkeys(shown(summary))
        if sum(is_of(figure, path) for figure in FIGURES) != 1
    ]


@pytest.mark.parametrize("overrides", RUNS.values(), ids=RUNS)
def test_every_figure_of_a_run_is_defined(overrides):
    summary = summary_of(*overrides)
    assert not undefined(summary), "a row in FIGURES of the file that computes it (metrics/figures.py)"
    assert summary["definitions"] == DEFINITIONS


def test_the_runs_show_every_figure():
    paths = [path for overrides in RUNS.values() for path in shown(summary_of(*overrides))]
    assert not [figure.name for figure in FIGURES if not any(is_of(figure, path) for path in paths)]


def test_every_family_is_explained():
    assert [row[0] for row in read_table("figure-families").rows] == [f"`{family}`" for family in FAMILIES]


def test_definitions_are_distinct():
    keys = [figure.key for figure in FIGURES]
    assert len(set(keys)) == len(keys)
    assert all(figure.meaning == DEFINITIONS[figure.key] for figure in FIGURES)
    parts = {part for figure in FIGURES for part in figure.name.split(".") if part.startswith("<")}
    assert parts == set(FAMILIES)


def test_stable_names_are_figures_of_the_same_unit():
    for name, unit in STABLE_METRICS.items():
        assert [figure.unit for figure in FIGURES if is_of(figure, tuple(name.split(".")))] == [unit], name
