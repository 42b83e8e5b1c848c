"""A scenario run again with each assumption at both ends of its interval, and with all of them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kvcache_sim.errors import TraceError
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.finished import FinishedRun
from kvcache_sim.report.sensitivity.assumption import Assumption
from kvcache_sim.report.sensitivity.assumptions import assumptions
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import Scenario, scenario_from_text
from kvcache_sim.scenario.requests import open_requests
from kvcache_sim.serving.settings import ClusterSettings
from kvcache_sim.simulation import RunOptions
from kvcache_sim.workload.readers.stream import TraceStream
from kvcache_sim.workload.trace import Trace

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
    """The answers with an assumption (None: all of them) at its slow and at its fast end."""

    assumption: Assumption | None
    slow: Values
    fast: Values


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """The answers as simulated, and at both ends of each assumption."""

    answers: Values
    moves: tuple[Move, ...]
    all_at_once: Move | None

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


def sensitivity(run: FinishedRun, on_run: Callable[[str], None] = lambda _: None) -> Sensitivity:
    """Run a finished run's scenario again, twice for each assumption and twice for all; nothing is written.

    ``on_run`` is called before each run. Raises TraceError where the trace has changed since the run, and
    the errors of a simulation. Cost: as many runs.
    """
    scenario = scenario_from_text(run.scenario_text, str(run.directory / "scenario.yaml"), run.directory)
    again = _Again(scenario, str(run.manifest.get("trace", {}).get("sha256", "")))
    on_run("as it was")
    answers = again.answers(scenario.settings)
    found = assumptions(scenario)
    moves = []
    for one in found:
        on_run(one.name)
        slow = again.answers(one.apply(scenario.settings, one.slow))
        moves.append(Move(one, slow, again.answers(one.apply(scenario.settings, one.fast))))
    at_once = None
    if len(found) > 1:
        on_run("all at once")
        at_once = Move(
            None,
            again.answers(_all(scenario.settings, [(one, one.slow) for one in found])),
            again.answers(_all(scenario.settings, [(one, one.fast) for one in found])),
        )
    return Sensitivity(answers, tuple(moves), at_once)


def _all(settings: ClusterSettings, values: Sequence[tuple[Assumption, float]]) -> ClusterSettings:
    for one, factor in values:
        settings = one.apply(settings, factor)
    return settings


class _Again:
    """The requests of a run, to be run again with other settings."""

    def __init__(self, scenario: Scenario, sha256: str) -> None:
        self._scenario, self._sha256 = scenario, sha256
        self._options = RunOptions()
        self._read: Trace | None = None

    def answers(self, settings: ClusterSettings) -> Values:
        """Return the answers of one run with these settings."""
        requests = self._read or open_requests(self._scenario, self._options)
        if not isinstance(requests, TraceStream):
            self._read = requests
        done = execute(replace(self._scenario, settings=settings), requests, self._options)
        if self._sha256 != done.trace.sha256:
            raise TraceError(
                "not the trace that ran",
                where=done.trace.source,
                got=done.trace.sha256[:16],
                expected=self._sha256[:16],
            )
        return {words: metric_value(done.summary, name) for words, name, _ in ANSWERS}
