"""Whole runs that were measured, each with a simulation of it, and their errors.

An error is the logarithm of the true value over the simulated one. ``data/run_errors.toml`` holds the runs;
``run_rule`` makes intervals of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kvcache_sim._core import toml_values
from kvcache_sim.base.values import Value

RATE = "output_tokens_per_s"
#: Figures with intervals, as in ``certainty`` of a summary.
FIGURES = ("ttft_mean", "ttft_p50", "ttft_p99", "tpot_mean", "e2e_mean", RATE)
LOADS = ("low", "near capacity")
#: Share of the mean TTFT that is queueing from which a run is near capacity.
NEAR_CAPACITY = 0.5


class Factors(NamedTuple):
    """The smallest and the largest ratio of the true to the simulated value."""

    low: float
    high: float


class Kind(Value):
    """A kind of source: its words, the family of the model (``dense``, ``moe``), and the engine.

    ``unmeasured`` is in words that no run of the engine on the GPU was measured, "" if some were.
    """

    source: str
    family: str
    engine: str = "vllm"
    unmeasured: str = ""

    def __str__(self) -> str:
        return f"{self.source}, {self.family}, {self.engine}"


class MeasuredRun(Value):
    """One simulation of one measured run: its kind and load, measured and simulated values by figure.

    ``deployment`` is its model, GPU, and engine with version; its runs share unknown errors.

    ``replays``: by figure the ratios of the value with every step at each of ``steps`` to the value as
    simulated; empty where batches are given, so that times grow as the steps do. ``queue`` is the share of
    the mean TTFT that is queueing, None where only batches are known.
    """

    kind: Kind
    group: str
    deployment: str
    run: str
    queue: float | None
    values: dict[str, tuple[float, float]]
    steps: tuple[float, ...]
    replays: dict[str, tuple[float, ...]]
    gpu: str = ""

    @property
    def load(self) -> str:
        """The load of the simulation; given batches have no queue, and count as low."""
        return load_of(self.queue or 0.0)

    def error(self, figure: str) -> float:
        """Return log(true / simulated) of a figure."""
        true, simulated = self.values[figure]
        return math.log(true / simulated)

    def move(self, figure: str, factor: float) -> float:
        """Return the logarithm by which a figure moves if every step takes ``factor`` of its time."""
        at = math.log(factor)
        if figure not in self.replays:
            return -at if figure == RATE else at
        ratios = zip(self.steps, self.replays[figure], strict=True)
        known = sorted([(0.0, 0.0), *((math.log(step), math.log(ratio)) for step, ratio in ratios)])
        after = next((i for i, (x, _) in enumerate(known) if x >= at), len(known) - 1)
        (x0, y0), (x1, y1) = known[max(after, 1) - 1], known[max(after, 1)]
        return y0 + (y1 - y0) * (at - x0) / (x1 - x0)


def load_of(queue: float) -> str:
    """Return the load of a run by the share of its mean TTFT that is queueing."""
    return LOADS[queue >= NEAR_CAPACITY]


@cache
def measured_runs() -> tuple[MeasuredRun, ...]:
    """Return every measured run that the project has; some 50 ms."""
    text = (Path(__file__).parent / "data/run_errors.toml").read_text(encoding="utf-8")
    return tuple(read_runs(toml_values(text)))


def read_runs(given: dict[str, Any]) -> Iterator[MeasuredRun]:
    """Yield the runs of a parsed file."""
    steps = tuple(given.pop("factors"))
    for group, one in given.items():
        replays: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
        for line in one.get("replays", "").strip().splitlines():
            source, run, figure, *ratios = line.split(",")
            replays.setdefault((source, run), {})[figure] = tuple(map(float, ratios))
        for line in one["rows"].strip().splitlines():
            source, family, engine, gpu, deployment, run, queue, *cells = line.split(",")
            pairs = zip(one["figures"], cells[::2], cells[1::2], strict=True)
            yield MeasuredRun(
                Kind(source, family, engine),
                group,
                deployment,
                run,
                float(queue) if queue else None,
                {figure: (float(true), float(simulated)) for figure, true, simulated in pairs if true},
                steps,
                replays.get((source, run), {}),
                gpu,
            )
