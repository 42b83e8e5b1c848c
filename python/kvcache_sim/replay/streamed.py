"""Eviction policies on a long trace that is read row by row: memory by blocks, never by references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kvcache_sim._core import OnlineReplays
from kvcache_sim.base.errors import TraceError
from kvcache_sim.base.units import format_bytes
from kvcache_sim.policies.resolve import parse_variant, resolve_policy, row_of
from kvcache_sim.replay.curve.hits import output_less
from kvcache_sim.replay.prefix import check_policy_settings, flat_figures, head, overlap
from kvcache_sim.replay.prompt_blocks import cut_ids
from kvcache_sim.replay.request import ReplayRequest, ReplayResult
from kvcache_sim.workload.readers.stream import RowStream

#: Hits, hits that count, their tokens, evictions, expired and resident blocks, digest of the hit tokens.
Answer = tuple[int, int, int, int, int, int, str]
#: Figures that need the whole trace, as a document names them.
NOT_COMPUTED = "upper_bounds, share_of_possible and misses need the whole trace: kvsim cachesim --whole"


def needs_future(policy: str) -> bool:
    """Return True for the upper bounds, which use later requests."""
    family, variant = resolve_policy(policy)
    return family == "prefix" and row_of(variant).is_upper_bound


def can_stream(policy: str) -> bool:
    """Return True for an eviction policy that replays rows one by one.

    Engines keep tables of the whole trace; ``wtinylfu`` counts names, which are those of the whole trace.
    """
    family, variant = resolve_policy(policy)
    return family == "prefix" and row_of(variant).name != "wtinylfu" and not needs_future(policy)


def memory_note(policy: str, json_bytes: int) -> str:
    """Return what an upper bound needs for a long trace; ``json_bytes`` is 0 if unknown."""
    least = f": {format_bytes(json_bytes)} or more" if json_bytes else ""
    return (
        f"{policy} uses later requests, so the trace is read whole: about 11 bytes of memory a reference and "
        f"30 a distinct block{least}; kvsim curve --sample 0.01 estimates lru at every size in little memory"
    )


class PolicyReplay(NamedTuple):
    """A replay, and the policy that it is of."""

    request: ReplayRequest
    policy: str


def replay_rows(rows: RowStream, asked: Sequence[PolicyReplay]) -> list[ReplayResult]:
    """Replay policies on rows, all in one pass, and return the figures of each without upper bounds.

    Block size, cut and discipline are those of the first.
    Every figure is that of the trace read whole. Only the settings of the requests are read. Raises as
    ``simulate_cache``, and ``NeedsWhole`` where a row cannot be replayed alone.
    """
    first = asked[0][0]
    size, flat = first.block_size_tokens, first.discipline == "flat"
    per_id = cut_ids(rows.block_size, size)
    online = OnlineReplays(size, per_id, first.last_partial == "keep", output_less(first), flat)
    for request, policy in asked:
        chosen = parse_variant(resolve_policy(policy)[1], size)
        check_policy_settings(request, chosen)
        settings = (chosen.native, request.window)
        if flat:
            online.add_plain(chosen.name, request.capacity_blocks, request.touch_from, *settings)
            online.add_plain(chosen.name, request.capacity_blocks, "queue", *settings)
        else:
            online.add_prefix(chosen.name, request.capacity_blocks, request.touch_from, *settings)
    try:
        rows.feed(online)
    except ValueError as error:
        raise TraceError(str(error), where=rows.source) from None
    answers, tiers = online.answers, 2 if flat else 1
    return [_result(online, answers[tiers * k :], *one) for k, one in enumerate(asked)]


def _result(
    online: OnlineReplays, answers: list[Answer], request: ReplayRequest, policy: str
) -> ReplayResult:
    """Return the figures of a policy, whose tiers come first in ``answers``."""
    requests, tokens, references = online.totals
    result = head(request, resolve_policy(policy)[1], requests, tokens, references)
    hits, _, _, evictions, _, resident, _ = answers[0]
    if request.discipline == "flat":
        result |= flat_figures(request, references, hits, evictions, resident)
        result["prefix_lookup"] = _figures(online, answers[1])
    else:
        result |= _figures(online, answers[0])
        result |= overlap(request, references - hits - evictions - resident)
    result["not_computed"] = NOT_COMPUTED
    return result


def _figures(online: OnlineReplays, answer: Answer) -> ReplayResult:
    _, tokens, references = online.totals
    _, hit_blocks, hit_tokens, evictions, expired, resident, digest = answer
    return {
        "hit_blocks": hit_blocks,
        "block_hit_rate": hit_blocks / max(1, references),
        "hit_tokens": hit_tokens,
        "hit_rate": hit_tokens / max(1, tokens),
        "evictions": evictions,
        "expired": expired,
        "resident_blocks": resident,
        "per_request_hit_tokens_sha256": digest,
    }
