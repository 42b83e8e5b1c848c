"""The claims of ``kvsim explain``: what would help, would not, or mattered, each with an experiment.

A sentence that claims something has a row in ``CLAIMS``: the settings to change, and the figure that must
move or must not. ``check`` runs the experiments of a run's own sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, NamedTuple

from kvcache_sim.base.errors import KvsimError
from kvcache_sim.base.tiers import COMPUTE, TIERS
from kvcache_sim.base.units import parse_rate_bytes_per_s, significant
from kvcache_sim.metrics.names import metric_value
from kvcache_sim.report.explain.case import Case
from kvcache_sim.report.explain.hit_rate import avoidable_share, missed_share
from kvcache_sim.report.explain.sentences import explain
from kvcache_sim.report.explain.tiers import blocks_without_drops
from kvcache_sim.report.upper_bound import hit_rates
from kvcache_sim.scenario.execute import execute
from kvcache_sim.scenario.load import varied_from_text
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import RunOptions

Expected = Literal["falls", "rises", "does not fall", "stays", "stays below"]
#: Relative change within which a figure stays.
_STAYS = 0.02
#: Groups and copies of a block that a cache which loses nothing can hold.
_COPIES = 16


class Claim(NamedTuple):
    """The settings that an experiment changes, the figure that it reads, and what the sentence says of it."""

    #: The ``--set`` values; empty where the run cannot be varied so.
    changes: Callable[[Case], list[str]]
    #: A figure of the summary, or a column of ``requests``: its mean.
    figure: str
    expected: Expected
    #: The bound of ``stays below``.
    bound: Callable[[Case], float] | None = None


class Checked(NamedTuple):
    """A sentence, its experiment, and what came out; ``true`` is None where it could not be run."""

    name: str
    sentence: str
    changes: tuple[str, ...]
    outcome: str
    true: bool | None


def _unbounded(case: Case) -> list[str]:
    """A cache that loses nothing: each machine can hold every token."""
    rows, block = case.run.requests, case.run.block_size_tokens
    tokens = int((rows["input_tokens"] + rows["output_tokens"]).sum())
    blocks = _COPIES * (tokens // block + 2 * len(rows["request"]))
    return [f"tiers.{TIERS[COMPUTE]}.capacity={blocks} blocks"]


def _more_machines(case: Case) -> list[str]:
    machines = case.scenario.settings.machines
    is_plain = len({machine.role for machine in machines}) == 1
    return [f"cluster.machines={2 * len(machines)}"] if is_plain else []


def _faster_channels(case: Case) -> list[str]:
    channels = case.run.scenario.get("channels") or {}
    rates = {name: parse_rate_bytes_per_s(str(channel["bandwidth"])) for name, channel in channels.items()}
    return [f"channels.{name}.bandwidth={4 * rate}B/s" for name, rate in rates.items()]


def _other_policy(case: Case) -> list[str]:
    cache, policy = case.scenario.settings.cache, case.scenario.settings.cache.policy
    if cache.semantics != "tree":
        return []
    return [f"cache.policy={'fifo' if policy == 'lru' else 'lru'}"]


def _smaller_blocks(case: Case) -> list[str]:
    block, cache = case.run.block_size_tokens, case.scenario.settings.cache
    return [f"cache.block_size={block // 2}"] if block % 2 == 0 and cache.groups is None else []


def _without(tier: str) -> Callable[[Case], list[str]]:
    return lambda case: [f"tiers.{tier}=null"] if case.tiers[-1] == tier else []


def _tier_without_drops(case: Case) -> list[str]:
    blocks = blocks_without_drops(case)
    return [] if blocks is None else [f"tiers.{TIERS[COMPUTE + 1]}.capacity={blocks} blocks"]


def _rest_after(cause: str) -> Callable[[Case], float]:
    return lambda case: 1 - missed_share(case, cause)


def _most_hits(case: Case) -> float:
    hit, _ = hit_rates(case.run) or (0.0, 0.0)
    return hit + (avoidable_share(case) or 0.0) * (1 - hit)


_HIT_RATE = "cache.token_hit_rate"
#: Sentence → its claim. A sentence without a row states what the run measured, and claims nothing.
CLAIMS: dict[str, Claim] = {
    "at-upper-bound": Claim(_unbounded, _HIT_RATE, "stays below", _most_hits),
    "avoidable": Claim(_unbounded, _HIT_RATE, "rises"),
    "evicted": Claim(_unbounded, _HIT_RATE, "rises"),
    **{
        name: Claim(_unbounded, _HIT_RATE, "stays below", _rest_after(name.replace("-", "_")))
        for name in ("never-seen", "diverged", "partial-block")
    },
    "shorter": Claim(_smaller_blocks, _HIT_RATE, "does not fall"),
    "saturated": Claim(_more_machines, "queue_ns", "falls"),
    "queueing": Claim(_more_machines, "queue_ns", "falls"),
    "fetching": Claim(_faster_channels, "fetch_ns", "falls"),
    "waiting-for-room": Claim(lambda _: ["write.policy=through"], "fetch_room_ns", "falls"),
    "preemptions": Claim(lambda _: ["replica.max_num_seqs=1"], "requests.preemptions", "falls"),
    "dropped": Claim(_tier_without_drops, "cache.dropped_blocks", "stays below", lambda _: 0.0),
    **{f"{tier}-unused": Claim(_without(tier), _HIT_RATE, "stays") for tier in TIERS[COMPUTE + 1 :]},
    **{f"{tier}-used": Claim(_without(tier), _HIT_RATE, "falls") for tier in TIERS[COMPUTE + 1 :]},
    "policy-without-choice": Claim(_other_policy, "latency.e2e.avg", "stays"),
    "router-without-choice": Claim(lambda _: ["router.policy=round-robin"], "latency.e2e.avg", "stays"),
    "write-policy-without-choice": Claim(lambda _: ["write.policy=through"], "latency.e2e.avg", "stays"),
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
        return Checked(name, sentence, (), "not run: this run cannot be varied so", None)
    before = _figure(claim.figure, run.summary, run.finished)
    try:
        source = str(run.directory / "scenario.yaml")
        scenario = varied_from_text(run.scenario_text, source, run.directory, changes)
        done = execute(scenario, read_requests(scenario), RunOptions())
    except KvsimError as error:
        idle = claim.expected == "stays" and "effect" in str(error)  # the setting itself is refused as idle
        return Checked(name, sentence, tuple(changes), f"refused: {error}", True if idle else None)
    rows: Any = done.run.requests
    after = _figure(claim.figure, done.summary, {k: v[rows["status"] == 0] for k, v in rows.items()})
    bound = None if claim.bound is None else claim.bound(case)
    limit = "" if bound is None else f", at most {significant(bound)}"
    outcome = f"{claim.figure} {significant(before)} → {significant(after)}{limit}"
    return Checked(name, sentence, tuple(changes), outcome, _holds(claim.expected, before, after, bound))


def _figure(name: str, summary: dict[str, Any], finished: Any) -> float:
    if name in finished:
        return float(finished[name].mean()) if len(finished[name]) else 0.0
    return metric_value(summary, name) or 0.0


def _holds(expected: Expected, before: float, after: float, bound: float | None) -> bool:
    """Return True if a figure moved as claimed."""
    if expected == "stays below":
        return after <= (bound or 0.0) + 1e-9
    if expected == "stays":
        return abs(after - before) <= _STAYS * abs(before)
    if expected == "does not fall":
        return after >= before
    return after < before if expected == "falls" else after > before


def claims_text(checked: list[Checked]) -> str:
    """Return each claim with its experiment and what came out."""
    words = {True: "as said", False: "NOT as said", None: "not checked"}
    lines = []
    for one in checked:
        tried = f"{', '.join(one.changes)}: " if one.changes else ""
        lines += [one.sentence, f"  {words[one.true]}: {tried}{one.outcome}"]
    return "\n".join(lines) or "No sentence of this run claims what another run would show."
