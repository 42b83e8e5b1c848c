"""A scenario run again with each assumption at both ends of its interval, and with all of them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.intervals.assumption import Assumption
from kvcache_sim.report.intervals.assumptions import assumptions
from kvcache_sim.report.intervals.certainty import certainty
from kvcache_sim.report.intervals.replays import Replays
from kvcache_sim.report.intervals.together import AtFactor, applied, loading_share, together
from kvcache_sim.scenario.load import scenario_to_repeat
from kvcache_sim.simulation import RunOptions

#: Answers: words, name in the summary, and True for a share, which moves by points.
ANSWERS: tuple[tuple[str, str, bool], ...] = (
    ("hit rate", "cache.token_hit_rate", True),
    ("TTFT p50", "latency.ttft.p50", False),
    ("TTFT p99", "latency.ttft.p99", False),
    ("TPOT mean", "latency.tpot.avg", False),
    ("tokens/s", "throughput.output_tokens_per_s", False),
)
#: Smallest move that counts.
_LEAST_MOVE = 0.001

Values = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Move:
    """The answers with an assumption (None: several of them) at its slow and at its fast end."""

    assumption: Assumption | None
    slow: Values
    fast: Values


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The answers as simulated, at both ends of each assumption, and of several.

    ``all_at_once`` has each assumption at its own end, ``together`` all at the bounds of 90 % of independent
    errors; None for fewer than two. ``summary`` is that of the run, with the group ``certainty``.
    """

    answers: Values
    moves: tuple[Move, ...]
    all_at_once: Move | None
    together: Move | None
    summary: Mapping[str, Any]

    def change(self, values: Values, words: str) -> float | None:
        """Return the difference of an answer from the simulated answer: absolute for a share, else relative.

        None where there is no such figure, or it is 0.
        """
        was, now = self.answers[words], values[words]
        if was is None or now is None:
            return None
        if _IS_SHARE[words]:
            return now - was
        return now / was - 1 if was else None

    def size(self, move: Move, words: str) -> float:
        """Return the larger of an assumption's two changes of an answer."""
        changes = (self.change(values, words) for values in (move.slow, move.fast))
        return max((abs(change) for change in changes if change is not None), default=0.0)

    def decides(self, words: str) -> Move | None:
        """Return the assumption that moves an answer most; None where none moves it."""
        found = max(self.moves, key=lambda move: self.size(move, words), default=None)
        return found if found is not None and self.size(found, words) >= _LEAST_MOVE else None

    def decisive(self) -> Move | None:
        """Return the assumption that moves the answers most, on average over them; None where none does."""

        def total(move: Move) -> float:
            return sum(self.size(move, words) for words, _, _ in ANSWERS)

        found = max(self.moves, key=total, default=None)
        return found if found is not None and total(found) >= _LEAST_MOVE else None


_IS_SHARE = {words: is_share for words, _, is_share in ANSWERS}


def sensitivity(
    run: FinishedRun, on_run: Callable[[str], None] = lambda _: None, plugins: bool = False
) -> Sensitivity:
    """Run a finished run again, twice for each assumption and four times for all; nothing is written.

    ``on_run`` is called before each run. Plug-ins need ``plugins``. Raises TraceError where the trace has
    changed since the run, and the errors of a simulation. Cost: as many runs.
    """
    scenario = scenario_to_repeat(run.scenario_text, run.directory, plugins)
    replays = Replays(scenario, str(run.manifest.get("trace", {}).get("sha256", "")), RunOptions(times=True))
    on_run("as it was")
    as_it_was = replays.run(scenario.settings)
    found = assumptions(scenario)

    def at(values: list[AtFactor]) -> Mapping[str, Any]:
        return replays.run(applied(scenario.settings, values)).summary

    moves, ends = [], []
    for one in found:
        on_run(one.name)
        ends = [at([AtFactor(one, one.slow)]), at([AtFactor(one, one.fast)])]
        moves.append(Move(one, *map(_answers, ends)))
    at_once = independent = None
    if len(found) > 1:
        on_run("all at once")
        worst = [
            at([AtFactor(one, one.slow) for one in found]),
            at([AtFactor(one, one.fast) for one in found]),
        ]
        at_once = Move(None, *map(_answers, worst))
        on_run("together, as independent errors")
        loading = loading_share(as_it_was.summary)
        ends = [at(together(found, slow, loading)) for slow in (True, False)]
        independent = Move(None, *map(_answers, ends))
    summary = {**as_it_was.summary, "certainty": certainty(as_it_was, ends)}
    return Sensitivity(_answers(summary), tuple(moves), at_once, independent, summary)


def _answers(summary: Mapping[str, Any]) -> Values:
    return {words: metric_value(summary, name) for words, name, _ in ANSWERS}
