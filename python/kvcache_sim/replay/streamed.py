"""One eviction policy on a long trace that is read row by row: memory by blocks, never by references."""

from __future__ import annotations

from kvcache_sim._core import OnlineReplays
from kvcache_sim.errors import TraceError
from kvcache_sim.policies.resolve import parse_variant, resolve_policy, row_of
from kvcache_sim.replay.curve.hits import output_less
from kvcache_sim.replay.prefix import check_policy_settings, flat_figures, head, overlap
from kvcache_sim.replay.prompt_blocks import cut_ids
from kvcache_sim.replay.request import ReplayRequest, ReplayResult
from kvcache_sim.units import format_bytes
from kvcache_sim.workload.readers.stream import RowStream

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


def replay_rows(rows: RowStream, request: ReplayRequest, policy: str) -> ReplayResult:
    """Replay one eviction policy on rows, and return its figures without upper bounds.

    Every figure is that of the trace read whole. Only the settings of ``request`` are read. Raises as
    ``simulate_cache``, and ``NeedsWhole`` where a row cannot be replayed alone.
    """
    _, variant = resolve_policy(policy)
    size, chosen = request.block_size_tokens, parse_variant(variant, request.block_size_tokens)
    flat = request.discipline == "flat"
    check_policy_settings(request, chosen)
    per_id = cut_ids(rows.block_size, size)
    online = OnlineReplays(size, per_id, request.last_partial == "keep", output_less(request), flat)
    asked = (chosen.native, request.window)
    if flat:
        online.add_plain(chosen.name, request.capacity_blocks, request.touch_from, *asked)
        online.add_plain(chosen.name, request.capacity_blocks, "queue", *asked)
    else:
        online.add_prefix(chosen.name, request.capacity_blocks, request.touch_from, *asked)
    try:
        rows.feed(online)
    except ValueError as error:
        raise TraceError(str(error), where=rows.source) from None
    requests, tokens, references = online.totals
    result = head(request, variant, requests, tokens, references)
    hits, _, _, evictions, _, resident, _ = online.answers[0]
    if flat:
        result |= flat_figures(request, references, hits, evictions, resident)
        result["prefix_lookup"] = _figures(online, 1)
    else:
        result |= _figures(online, 0)
        result |= overlap(request, references - hits - evictions - resident)
    result["not_computed"] = NOT_COMPUTED
    return result


def _figures(online: OnlineReplays, tier: int) -> ReplayResult:
    _, tokens, references = online.totals
    _, hit_blocks, hit_tokens, evictions, expired, resident, digest = online.answers[tier]
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
