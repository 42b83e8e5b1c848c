"""``scenarios/README.md`` as a whole: ``python docs/site/scenario_table.py`` writes it from fresh runs.

Each scenario has a question, a variant that it is compared with, and the figure that answers. The answer is computed,
at the scenario's own size and seed, and where it depends on timing at other seeds too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim.metrics.names import flatten
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import read_scenario, varied_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions
from kvcache_sim.base.units import format_time_ms

FOLDER = Path(__file__).resolve().parents[2] / "scenarios"
PAGE = FOLDER / "README.md"


class Figure(NamedTuple):
    """A figure of the summary that answers a question: its path, its words, and its text with a unit."""

    path: str
    words: str
    text: Callable[[float], str]


HITS = Figure("cache.token_hit_rate", "hit rate", lambda share: f"{share:.1%}".replace("%", " %"))
TTFT = Figure("latency.ttft.avg", "mean TTFT", format_time_ms)
ITL_P99 = Figure("latency.itl.p99", "ITL p99", format_time_ms)
JOBS = Figure("jobs.completion.avg", "mean time of a job", format_time_ms)


class Preset(NamedTuple):
    """A scenario, its question, and the variant, in words and settings, that answers it by a figure.

    ``factor``: the figure of the scenario over that of the variant is at most this if below 1, at least this if
    above, exactly 1 if 1. ``seeds``: further seeds, most of which must agree.
    """

    name: str
    question: str
    variant: str
    settings: tuple[str, ...]
    figure: Figure
    factor: float
    seeds: tuple[int, ...] = ()

    def holds(self, own: float, other: float) -> bool:
        """Return True if two values of the figure differ as the answer says."""
        if self.factor == 1:
            return own == other
        return own <= other * self.factor if self.factor < 1 else own >= other * self.factor


TWO_WIRES = (
    "channels.wire.edges=['1:cpu->0:cpu']",
    "channels.back={bandwidth: 5Gb/s, latency: 5us, edges: ['0:cpu->1:cpu']}",
)
OFF = ("cache.enabled=false",)
OTHERS = (2, 3, 4)
PRESETS = (
    Preset("quickstart", "What do a CPU and a disk tier save?", "with the GPU alone",
           ("tiers.cpu=null", "tiers.disk=null"), TTFT, 0.9),
    Preset("one-gpu", "What survives on the GPU alone?", "without a bound",
           ("tiers.gpu.capacity=unbounded",), HITS, 0.6),
    Preset("cpu-offload", "What does a CPU tier save?", "without it", ("tiers.cpu=null",), TTFT, 0.6),
    Preset("nvme", "What does prefetching from a slow tier save?", "without prefetch",
           ("prefetch.policy=none",), TTFT, 0.95, OTHERS),
    Preset("remote-pool", "What do machines gain when they read from each other?", "with their own tiers alone",
           ("fetch.lookup=local",), HITS, 1.1),
    Preset("two-machines", "What do two machines lose that read from each other over one wire?", "over two wires",
           TWO_WIRES, TTFT, 1.1, OTHERS),
    Preset("mooncake-pool", "How does TTFT depend on the network?", "over 24 Gb/s",
           ("channels.net.bandwidth=24Gb/s",), TTFT, 0.95, OTHERS),
    Preset("cachedattention", "Does a paused session's KV return before its next turn?", "without prefetch",
           ("prefetch={policy: none}",), TTFT, 0.97, OTHERS),
    Preset("ragcache", "What does the order of the queue do to the mean?", "first come, first served",
           ("replica.queue_order=fcfs",), TTFT, 0.95, OTHERS),
    Preset("pd-disagg", "What do prefill and decode pools do to the time between tokens?", "without pools",
           ("pools.prefill=0", "pools.decode=0"), ITL_P99, 0.8, OTHERS),
    Preset("conversational", "What does prefix caching save in chats?", "without it", OFF, TTFT, 0.8),
    Preset("repetitive", "What do shared instructions save?", "without prefix caching", OFF, TTFT, 0.8),
    Preset("few-shot", "What do a dozen shared prefixes save?", "without prefix caching", OFF, TTFT, 0.8),
    Preset("diverse", "What does prefix caching change if prompts share nothing?", "without it", OFF, TTFT, 1),
    Preset("overflow", "How much of a history that outgrows its window is still a prefix?", "in a window of 16,384",
           ("workload.window_tokens=16384",), HITS, 0.8),
    Preset("agentic", "Does the KV of agents survive their tool calls?", "without the CPU tier",
           ("tiers.cpu=null",), HITS, 1.05),
    Preset("agentx", "What does a CPU tier save coding agents?", "without it", ("tiers.cpu=null",), JOBS, 0.95),
)  # fmt: skip


def value_of(preset: Preset, settings: tuple[str, ...], seed: int | None = None) -> float:
    """Return a preset's figure as it stands, with other settings, at its own seed or another one."""
    path = FOLDER / f"{preset.name}.yaml"
    own = [*settings, *([] if seed is None else [f"seed={seed}"])]
    scenario = varied_from_text(read_scenario(path), str(path), path.parent, own)
    summary: dict[str, Any] = execute(scenario, read_requests(scenario), RunOptions()).summary
    return float(flatten(summary)[preset.figure.path])


class Answer(NamedTuple):
    """A computed answer: the row of the page, and whether it holds, at the own seed and at the others."""

    row: str
    holds: bool
    others: tuple[bool, ...]


def answer(preset: Preset) -> Answer:
    """Run a preset and its variant and return the answer."""
    own, other = value_of(preset, ()), value_of(preset, preset.settings)
    figure = preset.figure
    said = f"{figure.words} {figure.text(own)}; {preset.variant} {figure.text(other)}"
    if own != other:
        more = max(own, other) / min(own, other)
        said += f": {more:.2f} × {'higher' if own > other else 'lower'}"
    others = tuple(
        preset.holds(value_of(preset, (), seed), value_of(preset, preset.settings, seed))
        for seed in preset.seeds
    )
    if others:
        said += f" (so at {sum(others)} of {len(others)} other seeds)"
    return Answer(f"| `{preset.name}` | {preset.question} | {said} |\n", preset.holds(own, other), others)


HEAD = """\
# Scenarios that answer one question each

Each file is a whole scenario: run it, then vary what its first lines name.

    kvsim simulate -c scenarios/one-gpu.yaml

Each answer is that of the file as it stands, at its own size and seed, against one variant. Where it depends on timing,
the seeds 2, 3 and 4 were tried too. `python docs/site/scenario_table.py` runs them all and writes this page.

| scenario | question | answer |
|---|---|---|
"""
TAIL = """
`agentic`, `conversational`, `diverse`, `few-shot`, `overflow` and `repetitive` are the workloads of seed 000, `two-machines` is the
example of seed 001. `quickstart` is the first run of the README. `agentx` has coding agents of the shape reported for AgentX.

`vllm-rtx4090` predicts a real run: 300 ShareGPT requests on vLLM 0.19, each mean within 0.9 % of the measurement
([how far to trust it](../docs/understand/trust.md)). Its trace is not part of the project; the file names its source.
"""


def page(rows: Iterable[str]) -> str:
    """Return the whole page with the rows of its table."""
    return HEAD + "".join(rows) + TAIL


def rows_of(text: str) -> dict[str, str]:
    """Return the rows of a page by scenario."""
    return {found[1]: found[0] for found in re.finditer(r"^\| `([\w-]+)` \|.*\n", text, re.M)}


if __name__ == "__main__":
    PAGE.write_text(page(answer(preset).row for preset in PRESETS), encoding="utf-8")
