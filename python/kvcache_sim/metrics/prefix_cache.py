"""What prefix caching saved: the summary metrics of seed 000, section 5, under its names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.metrics.figure import Figure
from kvcache_sim.metrics.parts import Parts
from kvcache_sim.metrics.percentiles import describe
from kvcache_sim.metrics.run import CodedText, ColumnData

FIGURES = (
    Figure("prefix_cache.events.<outcome>", "", "how often the event was logged"),
    Figure("prefix_cache.eligible", "", "admitted requests with a prompt of at least one full block"),
    Figure("prefix_cache.conversational_turns", "", "eligible follow-up turns of sessions"),
    Figure("prefix_cache.overall_hit_rate", "share", "(CONVERSATIONAL_HIT + CROSS_REQUEST_HIT) / eligible"),
    Figure(
        "prefix_cache.conversational_hit_rate",
        "share",
        "CONVERSATIONAL_HIT / eligible follow-up turns of sessions",
    ),
    Figure(
        "prefix_cache.cross_request_hit_rate",
        "share",
        "CROSS_REQUEST_HIT / eligible without a CONVERSATIONAL_HIT",
    ),
    Figure(
        "prefix_cache.avg_cached_prefix_length_on_hit",
        "tokens",
        "mean cached_prefix_length_used of requests with a hit",
    ),
    Figure(
        "prefix_cache.avg_tokens_prefilled",
        "tokens",
        "mean num_tokens_actually_prefilled of all admitted requests",
    ),
    Figure(
        "prefix_cache.prefill_ratio",
        "share",
        "sum of num_tokens_actually_prefilled / sum of prompt tokens",
    ),
    Figure(
        "prefix_cache.ttft_hit_vs_miss.<hit>.<statistic>",
        "ms",
        "ttft of requests with a hit (full or partial) against those without",
    ),
    Figure("prefix_cache.ttft_hit_vs_miss.sentence", "", "the same in words, with the prefill saved"),
)


def summarize_prefix_cache(
    admitted: Mapping[str, NDArray[Any]], events: Mapping[str, ColumnData], block_size_tokens: int
) -> dict[str, Any]:
    """Return the seven figures with what they are shares of, and the counts of the five events.

    ``admitted`` are the columns of the requests that were admitted, ``events`` those of the run. Token
    counts in tokens, TTFT in ms; None where nothing was counted. Tokens computed again after a preemption
    are no part of it: they are a column of their own.
    """
    cached = admitted["cached_prefix_length_used"]
    prefilled = admitted["num_tokens_actually_prefilled"]
    prompts = admitted["input_tokens"]
    eligible = prompts >= block_size_tokens
    conversational = eligible & (admitted["outcome"] == OUTCOMES.index("CONVERSATIONAL_HIT"))
    cross_request = eligible & (admitted["outcome"] == OUTCOMES.index("CROSS_REQUEST_HIT"))
    follow_ups = eligible & (admitted["session"] >= 0) & (admitted["turn"] > 0)
    checked = eligible & ~conversational
    hit = cached > 0
    ttft_ns = admitted["first_token_ns"] - admitted["arrival_ns"]
    return {
        "events": _count_events(events),
        "eligible": int(eligible.sum()),
        "conversational_turns": int(follow_ups.sum()),
        "overall_hit_rate": _share(conversational.sum() + cross_request.sum(), eligible.sum()),
        "conversational_hit_rate": _share(conversational.sum(), follow_ups.sum()),
        "cross_request_hit_rate": _share(cross_request.sum(), checked.sum()),
        "avg_cached_prefix_length_on_hit": _share(cached.sum(), hit.sum()),
        "avg_tokens_prefilled": _share(prefilled.sum(), len(prefilled)),
        "prefill_ratio": _share(prefilled.sum(), prompts.sum()),
        "ttft_hit_vs_miss": {
            "hit": describe(ttft_ns[hit]),
            "miss": describe(ttft_ns[~hit]),
            "sentence": _sentence(ttft_ns[hit], ttft_ns[~hit], _share(cached.sum(), prompts.sum())),
        },
    }


def with_left(figures: dict[str, Any], left: Mapping[str, int]) -> dict[str, Any]:
    """Return the figures with the outcomes counted in that were written before the run had ended."""
    return {**figures, "events": {name: n + left.get(name, 0) for name, n in figures["events"].items()}}


def _count_events(events: Mapping[str, ColumnData]) -> dict[str, int]:
    """Return how often each of the five events was logged."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for part in events.parts() if isinstance(events, Parts) else (events,):
        for name, count in outcomes_of(part).items():
            counts[name] += count
    return counts


def outcomes_of(events: Mapping[str, ColumnData]) -> dict[str, int]:
    """Return how often each outcome was logged that was."""
    kinds, details = events["kind"], events["detail"]
    assert isinstance(kinds, CodedText)
    assert isinstance(details, CodedText)
    if "prefix_cache_event" not in kinds.words:
        return {}
    logged = details.codes[kinds.codes == kinds.words.index("prefix_cache_event")]
    counts = np.bincount(logged, minlength=len(details.words)).tolist()
    return {details.words[code]: count for code, count in enumerate(counts) if count}


def _share(part: Any, whole: Any) -> float | None:
    return int(part) / int(whole) if whole else None


def _sentence(hits_ns: NDArray[np.int64], misses_ns: NDArray[np.int64], saved: float | None) -> str:
    """Return the comparison as people say it."""
    if saved is None:
        return "no request was admitted"
    if not len(hits_ns):
        return f"no request hit; all {len(misses_ns):,} waited {_median_ms(misses_ns)} ms at the median"
    hits = f"full and partial hits waited {_median_ms(hits_ns)} ms at the median"
    misses = f"misses {_median_ms(misses_ns)} ms" if len(misses_ns) else "no request missed"
    return f"{hits}, {misses}; {saved:.0%} of prefill was saved".replace("%", " %")


def _median_ms(values_ns: NDArray[np.int64]) -> str:
    median = float(np.median(values_ns)) / 1e6
    return f"{median:,.0f}" if median >= 100 else f"{median:.3g}"
