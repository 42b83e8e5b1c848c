"""The document of ``kvsim curve``: all its figures, ready for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.errors import UsageError
from kvcache_sim.replay.curve.hits import (
    CurveTotals,
    HitCurve,
    StreamedCurve,
    hit_curve,
    streamed_curve,
    totals_of,
)
from kvcache_sim.replay.curve.others import policy_points
from kvcache_sim.replay.curve.sample import check_rate, sample_of_prompts, sample_of_rows
from kvcache_sim.replay.curve.sessions import session_hits
from kvcache_sim.replay.curve.steps import lower_tier, reference_points
from kvcache_sim.replay.prompt_blocks import blocks_of_prompts
from kvcache_sim.replay.request import LastPartial, Outputs, PromptEnd, ReplayRequest
from kvcache_sim.replay.streamed import needs_future
from kvcache_sim.report.curve.sizes import kv_bytes_per_token, parse_capacity
from kvcache_sim.workload.coarser_blocks import in_coarser_blocks
from kvcache_sim.workload.readers.stream import RowStream
from kvcache_sim.workload.trace import Trace
from kvcache_sim.workload.upper_bound import upper_bound_hit_tokens

#: Rows of a table without chosen capacities.
_DEFAULT_POINTS = 14


@dataclass(frozen=True, slots=True)
class CurveAsk:
    """The curve to compute; the capacity of ``request`` is not read.

    ``capacities`` in blocks (empty: powers of two up to the footprint), ``policies`` besides lru, ``above``
    the tiers above the tier in question (fast to slow, in blocks), ``sample_rate`` 0 for the exact curve.
    """

    request: ReplayRequest
    capacities: tuple[int, ...] = ()
    policies: tuple[str, ...] = ()
    above: tuple[int, ...] = ()
    by_session: bool = False
    every_capacity: bool = False
    #: True if the document holds the ``line`` that a picture draws.
    line: bool = False
    kv_bytes_per_token: int = 0
    sample_rate: float = 0.0
    seed: int = 0
    #: The rows of a long trace, which ``request`` is without; then only lru is known.
    rows: RowStream | None = None


Document = dict[str, Any]


def curve_ask(
    requests: Trace | RowStream,
    *,
    block_size: int = 0,
    capacity: Sequence[object] | None = None,
    policy: Sequence[str] | None = None,
    given: Sequence[object] | None = None,
    by_session: bool = False,
    model: str = "",
    order: PromptEnd = "tail",
    outputs: Outputs = "prompt",
    last_partial: LastPartial = "drop",
    every_capacity: bool = False,
    sample: float = 0.0,
    seed: int = 0,
    line: bool = False,
) -> CurveAsk:
    """Return the curve that options of ``kvsim curve`` ask for; raises ``UsageError`` by their names."""
    rows = requests if isinstance(requests, RowStream) else None
    read = requests.header if isinstance(requests, RowStream) else requests
    size, kv_bytes = block_size or requests.block_size, kv_bytes_per_token(model)

    def blocks(texts: Sequence[object] | None, where: str) -> tuple[int, ...]:
        return tuple(parse_capacity(str(text), size * kv_bytes, where, size) for text in texts or ())

    read = in_coarser_blocks(read, size)
    return CurveAsk(
        ReplayRequest(read, size, 1, outputs=outputs, touch_from=order, last_partial=last_partial),
        blocks(capacity, "--capacity"),
        tuple(policy or ()),
        blocks(given, "--given"),
        by_session,
        every_capacity,
        line,
        kv_bytes,
        sample,
        seed,
        rows,
    )


def curve_document(ask: CurveAsk) -> Document:
    """Return the curve of a trace with its reference points and the other requested figures.

    The exact curve costs one pass, however many capacities; every other policy, Belady included, costs a
    replay a capacity. Raises ``UsageError`` and ``TraceError``.
    """
    if ask.sample_rate:
        return _sampled(ask)
    if ask.rows is not None:
        return exact_document(ask, streamed_curve(ask.rows, ask.request), {})
    prompts = blocks_of_prompts(ask.request)
    curve = hit_curve(prompts, ask.request.touch_from)
    capacities = _capacities(ask, curve)
    columns = {}
    for policy in dict.fromkeys((*ask.policies, "belady")):
        if policy != "lru":
            # upper bounds use the future, whichever end is released first
            asked = replace(ask.request, touch_from="tail") if needs_future(policy) else ask.request
            columns[policy] = policy_points(prompts, asked, policy, capacities)
    document = exact_document(ask, curve, columns) | {"upper_bound": _upper_bound(curve)}
    if ask.by_session:
        document["sessions"] = _sessions(curve, capacities)
    return document


def exact_document(
    ask: CurveAsk, curve: HitCurve | StreamedCurve, others: dict[str, list[Document]]
) -> Document:
    """Return the figures of a curve; ``others`` are points of other policies at the same capacities."""
    capacities = _capacities(ask, curve)
    columns = {"lru": _lru_points(curve, capacities)} | others
    document = _head(ask, curve.totals) | {
        "distinct_blocks": curve.distinct_blocks,
        "unbounded": _share(curve, curve.hit_blocks.top, curve.hit_tokens.top),
        "landmarks": _reference_points(ask, curve),
        "points": [
            _size(ask, capacity) | {name: column[k] for name, column in columns.items()}
            for k, capacity in enumerate(capacities)
        ],
    }
    if ask.above:
        document["lower_tier"] = _lower_tier(ask, curve, capacities)
    if ask.line:
        sizes = drawn_sizes(2 * max(1, curve.hit_blocks.last, *capacities))
        document["line"] = {
            "capacity_blocks": sizes.tolist(),
            "hit_blocks": curve.hit_blocks.at(sizes).tolist(),
        }
    if ask.every_capacity:
        corners = curve.hit_blocks.corners
        document["every_capacity"] = {
            "capacity_blocks": corners.tolist(),
            "hit_blocks": curve.hit_blocks.at(corners).tolist(),
        }
    return document


def _capacities(ask: CurveAsk, curve: HitCurve | StreamedCurve) -> list[int]:
    return list(ask.capacities) or _powers_of_two(curve.hit_blocks.last)


def _head(ask: CurveAsk, totals: CurveTotals) -> Document:
    request = ask.request
    return {
        "trace": totals.source,
        "trace_sha256": totals.sha256,
        "n_requests": totals.requests,
        "block_size": request.block_size_tokens,
        "order": request.touch_from,
        "outputs": request.outputs,
        "last_partial": request.last_partial,
        "kv_bytes_per_token": ask.kv_bytes_per_token or None,
        "queried_blocks": totals.references,
        "queried_tokens": totals.input_tokens,
    }


def _size(ask: CurveAsk, blocks: int) -> Document:
    size: Document = {"capacity_blocks": blocks}
    if ask.kv_bytes_per_token:
        size["capacity_bytes"] = blocks * ask.request.block_size_tokens * ask.kv_bytes_per_token
    return size


def _share(curve: HitCurve | StreamedCurve, blocks: int, tokens: int) -> Document:
    return {
        "hit_blocks": blocks,
        "block_hit_rate": blocks / max(1, curve.totals.references),
        "hit_tokens": tokens,
        "hit_rate": tokens / max(1, curve.totals.input_tokens),
    }


def _upper_bound(curve: HitCurve) -> Document:
    """Return the hits of an unbounded cache that keeps answers too, as runs do (``cache.cache_output``)."""
    prompts = curve.prompts
    tokens = int(upper_bound_hit_tokens(prompts.trace, True, prompts.block_size_tokens).sum())
    if tokens <= curve.hit_tokens.top:  # no prompt continues an answer, or partial blocks count
        return _share(curve, curve.hit_blocks.top, curve.hit_tokens.top)
    return _share(curve, tokens // prompts.block_size_tokens, tokens)


def _lru_points(curve: HitCurve | StreamedCurve, capacities: list[int]) -> list[Document]:
    sizes = np.array(capacities, np.int64)
    pairs = zip(curve.hit_blocks.at(sizes).tolist(), curve.hit_tokens.at(sizes).tolist(), strict=True)
    return [_share(curve, blocks, tokens) for blocks, tokens in pairs]


def _reference_points(ask: CurveAsk, curve: HitCurve | StreamedCurve) -> Document:
    found = asdict(reference_points(curve.hit_blocks))
    names = [name.removesuffix("_blocks") for name in found]
    points = _lru_points(curve, list(found.values()))
    return {
        name: _size(ask, blocks) | point
        for name, blocks, point in zip(names, found.values(), points, strict=True)
    }


def _lower_tier(ask: CurveAsk, curve: HitCurve | StreamedCurve, capacities: list[int]) -> Document:
    tier = lower_tier(curve.hit_blocks, list(ask.above), np.array(capacities, np.int64))
    references = max(1, curve.totals.references)
    return {
        "above_blocks": list(ask.above),
        "above_block_hit_rate": tier.above_hit_blocks / references,
        "above_inclusive_block_hit_rate": tier.above_inclusive_hit_blocks / references,
        "points": [
            _size(ask, capacity)
            | {"exclusive_hit_blocks": alone, "inclusive_hit_blocks": within}
            | {"exclusive_rate": alone / references, "inclusive_rate": within / references}
            for capacity, alone, within in zip(
                capacities, tier.exclusive.tolist(), tier.inclusive.tolist(), strict=True
            )
        ],
    }


def _sessions(curve: HitCurve, capacities: list[int]) -> Document:
    split = session_hits(curve, np.array(capacities, np.int64))
    names = [*curve.prompts.trace.session_names, "(none)"]
    rows = [
        {
            "session": names[s] if len(names) == len(split.requests) else str(s),
            "n_requests": int(split.requests[s]),
            "queried_blocks": int(split.references[s]),
            "hit_blocks": split.hit_blocks[s, :-1].tolist(),
            "unbounded_hit_blocks": int(split.hit_blocks[s, -1]),
        }
        for s in range(len(split.requests))
        if split.requests[s]
    ]
    return {
        "capacity_blocks": capacities,
        "own_hit_blocks": split.own_blocks[:-1].tolist(),
        "own_unbounded_hit_blocks": int(split.own_blocks[-1]),
        "rows": rows,
    }


def _sampled(ask: CurveAsk) -> Document:
    check_rate(ask.sample_rate)
    for given, flag in (
        (ask.policies, "--policy"),
        (ask.above, "--given"),
        (ask.by_session, "--by-session"),
        (ask.every_capacity, "--every-capacity"),
        (ask.request.touch_from == "root", "--order root"),
    ):
        if given:
            raise UsageError("not known from a sample", where=flag, hint="leave out --sample")
    if ask.rows is not None:
        sample, totals = sample_of_rows(ask.rows, ask.request, ask.sample_rate, ask.seed)
    else:
        prompts = blocks_of_prompts(ask.request)
        sample, totals = sample_of_prompts(prompts, ask.sample_rate, ask.seed), totals_of(prompts)
    capacities = list(ask.capacities) or _powers_of_two(sample.distinct_blocks)
    found = sample.at(np.array(capacities, np.int64))
    references = max(1, totals.references)
    return _head(ask, totals) | {
        "sample": {"rate": found.rate, "ids": found.sampled_ids, "seed": ask.seed, "confidence": 0.95},
        "points": [
            _size(ask, capacity)
            | {
                "lru": {
                    "hit_blocks": hits,
                    "block_hit_rate": hits / references,
                    "error_rate": error / references,
                }
            }
            for capacity, hits, error in zip(
                capacities, found.hit_blocks.tolist(), found.error_blocks.tolist(), strict=True
            )
        ],
    }


def _powers_of_two(last: int) -> list[int]:
    """Return powers of two up to the first that reaches ``last``, the largest few."""
    top = max(0, last - 1).bit_length()
    return [1 << k for k in range(max(0, top - _DEFAULT_POINTS + 1), top + 1)]


_PIXELS = 900


def drawn_sizes(most: int) -> NDArray[np.int64]:
    """Return capacities in 1 … ``most``, evenly spread on a log axis and all of them where they are few.

    The curve is known at every capacity, so nothing between two of these needs a guess: drawn as steps, the
    picture shows no value that was not computed.
    """
    return np.unique(np.geomspace(1, max(1, most), _PIXELS).astype(np.int64))
