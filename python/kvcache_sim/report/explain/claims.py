"""The claims of ``kvsim explain``: what would help, would not, or mattered, each with an experiment.

A sentence that claims something has a row in ``CLAIMS``: the settings to change, and the figure that must
move or must not. ``check`` runs the experiments of a run's own sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.base.tiers import COMPUTE, KV_SOURCES, REMOTE, TIERS
from kvcache_sim.base.units import significant
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.compare.comparison import LEAST_DIFFERENCE
from kvcache_sim.report.explain import experiments as by
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.hit_rate import avoidable_share, missed_share
from kvcache_sim.report.explain.sentences import explain
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import varied_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions

Expected = Literal["falls", "rises", "does not fall", "stays", "stays below", "at least", "as said"]
#: Share of prompt tokens that is not worth saying.
_SLACK = 0.005
#: Part of what a cause takes that its remedy brings back at least: times change with the remedy.
_MUCH = 0.5
_LIMITS = {"stays below": "at most", "at least": "at least"}


class Claim(NamedTuple):
    """The settings that an experiment changes, the figure that it reads, and what the sentence says of it."""

    #: The ``--set`` values; empty where the run cannot be varied so.
    changes: by.Changes
    #: A figure of the summary, or a column of ``requests``: its mean.
    figure: str
    expected: Expected
    #: The bound of ``stays below`` and ``at least``.
    bound: Callable[[Case], float] | None = None


class Checked(NamedTuple):
    """A sentence, its experiment, and what came out; ``true`` is None where it could not be run."""

    name: str
    sentence: str
    changes: tuple[str, ...]
    outcome: str
    true: bool | None


def _most_of(cause: str) -> Callable[[Case], float]:
    """Return the hit rate at which much of a cause's misses hits; of groups any, as others may lose it."""

    def bound(case: Case) -> float:
        part = _MUCH if case.scenario.settings.cache.groups is None else 0.0
        return _hit_rate(case) + part * missed_share(case, cause)

    return bound


def _most_hits(case: Case) -> float:
    return _hit_rate(case) + (avoidable_share(case) or 0.0) * (1 - _hit_rate(case)) + _SLACK


def _rest_after(cause: str) -> Callable[[Case], float]:
    return lambda case: 1 - missed_share(case, cause) + _SLACK


def _hit_rate(case: Case) -> float:
    return int(case.run.finished["cached_prefix_length_used"].sum()) / max(case.prompt_tokens, 1)


_HIT_RATE = "cache.token_hit_rate"
#: Sentence → its claim. A sentence without a row states what the run measured, and claims nothing.
CLAIMS: dict[str, Claim] = {
    "at-upper-bound": Claim(by.unbounded, _HIT_RATE, "stays below", _most_hits),
    "nothing-repeats": Claim(by.unbounded, _HIT_RATE, "stays"),
    "evicted": Claim(by.unbounded, _HIT_RATE, "at least", _most_of("evicted")),
    "elsewhere": Claim(by.one_machine, _HIT_RATE, "at least", _most_of("elsewhere")),
    **{
        name: Claim(by.unbounded, _HIT_RATE, "stays below", _rest_after(name.replace("-", "_")))
        for name in ("never-seen", "diverged", "partial-block")
    },
    "not-ready": Claim(by.slower_arrivals, _HIT_RATE, "rises"),
    "not-loaded": Claim(by.always_loaded, _HIT_RATE, "rises"),
    "not-admitted": Claim(by.all_admitted, _HIT_RATE, "at least", _most_of("not_admitted")),
    **{name: Claim(by.kept_states, _HIT_RATE, "rises") for name in ("window-moved-on", "no-checkpoint")},
    "shorter": Claim(by.smaller_blocks, _HIT_RATE, "does not fall"),
    "saturated": Claim(by.more_machines, "queue_ns", "falls"),
    "queueing": Claim(by.more_machines, "queue_ns", "falls"),
    "fetching": Claim(by.faster_channels, "fetch_ns", "falls"),
    "batch-stalls": Claim(by.faster_channels, "batch_stall_ns", "falls"),
    "waiting-for-room": Claim(by.early_copies, "fetch_room_ns", "falls"),
    "preemptions": Claim(by.fixed("replica.max_num_seqs=1"), "requests.preemptions", "falls"),
    "rejections": Claim(by.enough_for_rejected, "requests.rejected", "falls"),
    "dropped": Claim(by.tier_without_drops, "cache.dropped_blocks", "falls"),
    "drive-writes": Claim(by.larger_drive, "tiers.disk.drive_writes_per_day", "falls"),
    "none-returns": Claim(by.unbounded, _HIT_RATE, "stays"),
    **{f"{tier}-unused": Claim(by.without(tier), _HIT_RATE, "stays") for tier in TIERS[COMPUTE + 1 :]},
    **{f"{tier}-used": Claim(by.without_served(tier), _HIT_RATE, "falls") for tier in TIERS[COMPUTE + 1 :]},
    f"{KV_SOURCES[REMOTE]}-used": Claim(by.without_served(KV_SOURCES[REMOTE]), _HIT_RATE, "falls"),
    "net-of-loads": Claim(by.without_loads, "latency.ttft.avg", "as said"),
    **{
        f"break-even-{tier}": Claim(by.cheaper_loads(tier), f"cached_{tier}_tokens", "falls")
        for tier in TIERS[COMPUTE + 1 :]
    },
    "channel-too-slow": Claim(by.wide_channel, "fetch_ns", "falls"),
    "policy-without-choice": Claim(by.other_policy, "latency.e2e.avg", "stays"),
    "router-without-choice": Claim(by.fixed("router.policy=round-robin"), "latency.e2e.avg", "stays"),
    "write-policy-without-choice": Claim(by.fixed("write.policy=through"), "latency.e2e.avg", "stays"),
}


def check(case: Case, names: Collection[str] = tuple(CLAIMS)) -> Iterator[Checked]:
    """Run the experiment of each of these claims among a run's sentences.

    Raises what reading its requests raises.
    """
    for group in explain(case).values():
        for name, sentence in group.items():
            if name in names:
                yield _check(case, name, sentence)


def _check(case: Case, name: str, sentence: str) -> Checked:
    claim, run = CLAIMS[name], case.run
    changes = claim.changes(case)
    if not changes:
        return Checked(name, sentence, (), "not run: nothing that it names can be varied here", None)
    try:
        source = str(run.directory / "scenario.yaml")
        scenario = varied_from_text(run.scenario_text, source, run.directory, changes)
        done = execute(scenario, read_requests(scenario), RunOptions())
    except KvsimError as error:
        idle = claim.expected == "stays" and "effect" in str(error)  # the setting itself is refused as idle
        return Checked(name, sentence, tuple(changes), f"refused: {error}", True if idle else None)
    rows: Any = done.run.requests
    finished = {name: column[rows["status"] == 0] for name, column in rows.items()}
    common = np.intersect1d(run.finished["request"], finished["request"])
    before = _figure(claim.figure, run.summary, run.finished, common)
    after = _figure(claim.figure, done.summary, finished, common)
    bound = None if claim.bound is None else claim.bound(case)
    limit = "" if bound is None else f", {_LIMITS[claim.expected]} {significant(bound)}"
    outcome = f"{claim.figure} {significant(before)} → {significant(after)}{limit}"
    expected = claim.expected
    if expected == "as said":
        expected = "rises" if "longer" in sentence else "falls"
    return Checked(name, sentence, tuple(changes), outcome, _holds(expected, before, after, bound))


def _figure(name: str, summary: dict[str, Any], finished: Any, common: NDArray[Any]) -> float:
    """Return a figure of the summary, or of the requests that both runs finished: the hit rate, or a mean."""
    if name not in finished and name != _HIT_RATE:
        return metric_value(summary, name) or 0.0
    both = np.isin(finished["request"], common)
    if name == _HIT_RATE:
        sums = (finished[column][both].sum() for column in ("cached_prefix_length_used", "input_tokens"))
        hit, prompts = map(float, sums)
        return hit / prompts if prompts else 0.0
    return float(finished[name][both].mean()) if both.any() else 0.0


def _holds(expected: Expected, before: float, after: float, bound: float | None) -> bool:
    """Return True if a figure moved as claimed."""
    if expected == "stays below":
        return after <= (bound or 0.0) + 1e-9
    if expected == "at least":
        return after >= (bound or 0.0) - 1e-9
    if expected == "stays":
        return abs(after - before) <= LEAST_DIFFERENCE * max(abs(before), abs(before) <= 1)
    if expected == "does not fall":
        return after >= before - LEAST_DIFFERENCE
    return after < before if expected == "falls" else after > before


def claims_text(checked: list[Checked]) -> str:
    """Return each claim with its experiment and what came out."""
    words = {True: "as said", False: "NOT as said", None: "not checked"}
    lines = []
    for one in checked:
        tried = f"{', '.join(one.changes)}: " if one.changes else ""
        lines += [one.sentence, f"  {words[one.true]}: {tried}{one.outcome}"]
    return "\n".join(lines) or "No sentence of this run claims what another run would show."
