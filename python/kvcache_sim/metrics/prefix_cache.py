"""Savings of prefix caching: the summary metrics of seed 000, section 5, under its names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.base.units import format_time_ms, significant
from kvcache_sim.metrics.columns import OUTCOMES
from kvcache_sim.metrics.durations import EXACT_DURATIONS, Durations
from kvcache_sim.metrics.figure import Figure, share_of
from kvcache_sim.metrics.parts import Parts
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
    Figure(
        "prefix_cache.ttft_hit_vs_miss.sentence",
        "",
        "hits, misses, the prefill saved; and both medians of prompts equally long within 25 %",
    ),
)


_CONVERSATIONAL = OUTCOMES.index("CONVERSATIONAL_HIT")
_CROSS_REQUEST = OUTCOMES.index("CROSS_REQUEST_HIT")


class PrefixCacheTotals:
    """Savings of admitted requests, rows added in batches.

    Token counts in tokens, TTFT in ms; None if nothing was counted. Tokens recomputed after a preemption are
    not included: they have their own column.
    """

    def __init__(self, block_size_tokens: int) -> None:
        self._block_size_tokens = block_size_tokens
        self._counts: Counter[str] = Counter()
        self._hits, self._misses = Durations(), Durations()
        #: Prompt tokens, whether it hit (0 or 1), and TTFT of the first ``EXACT_DURATIONS`` requests.
        self._waits: list[NDArray[np.int64]] = []

    def add(self, admitted: Mapping[str, NDArray[Any]]) -> None:
        """Add the columns of some admitted requests."""
        cached, prompts = admitted["cached_prefix_length_used"], admitted["input_tokens"]
        prefilled = admitted["num_tokens_actually_prefilled"]
        eligible = prompts >= self._block_size_tokens
        outcome = admitted["outcome"]
        hit = cached > 0
        ttft_ns = admitted["first_token_ns"] - admitted["arrival_ns"]
        self._counts.update(
            admitted=len(prompts),
            eligible=int(eligible.sum()),
            conversational=int((eligible & (outcome == _CONVERSATIONAL)).sum()),
            cross_request=int((eligible & (outcome == _CROSS_REQUEST)).sum()),
            follow_ups=int((eligible & (admitted["session"] >= 0) & (admitted["turn"] > 0)).sum()),
            hits=int(hit.sum()),
            cached=int(cached.sum()),
            prefilled=int(prefilled.sum()),
            prompts=int(prompts.sum()),
        )
        if self._counts["admitted"] <= EXACT_DURATIONS:
            self._waits.append(np.stack([prompts, hit, ttft_ns]))
        self._hits.add(ttft_ns[hit])
        self._misses.add(ttft_ns[~hit])

    def figures(self, events: Mapping[str, ColumnData]) -> dict[str, Any]:
        """Return the seven figures with their denominators, and the counts of the run's five events."""
        n = self._counts
        hits, misses = self._hits.describe(), self._misses.describe()
        return {
            "events": _count_events(events),
            "eligible": n["eligible"],
            "conversational_turns": n["follow_ups"],
            "overall_hit_rate": share_of(n["conversational"] + n["cross_request"], n["eligible"]),
            "conversational_hit_rate": share_of(n["conversational"], n["follow_ups"]),
            "cross_request_hit_rate": share_of(n["cross_request"], n["eligible"] - n["conversational"]),
            "avg_cached_prefix_length_on_hit": share_of(n["cached"], n["hits"]),
            "avg_tokens_prefilled": share_of(n["prefilled"], n["admitted"]),
            "prefill_ratio": share_of(n["prefilled"], n["prompts"]),
            "ttft_hit_vs_miss": {
                "hit": hits,
                "miss": misses,
                "sentence": _sentence(n, medians_of_equal_length(*np.concatenate(self._waits, axis=1)))
                if self._waits
                else "no request was admitted",
            },
        }


def with_left(figures: dict[str, Any], left: Mapping[str, int]) -> dict[str, Any]:
    """Return the figures with the outcomes added that were written during the run."""
    return {**figures, "events": {name: n + left.get(name, 0) for name, n in figures["events"].items()}}


def _count_events(events: Mapping[str, ColumnData]) -> dict[str, int]:
    """Return the counts of the five events."""
    counts = dict.fromkeys(OUTCOMES, 0)
    for part in events.parts() if isinstance(events, Parts) else (events,):
        for name, count in outcomes_of(part).items():
            counts[name] += count
    return counts


def outcomes_of(events: Mapping[str, ColumnData]) -> dict[str, int]:
    """Return the counts of the logged outcomes."""
    kinds, details = events["kind"], events["detail"]
    assert isinstance(kinds, CodedText)
    assert isinstance(details, CodedText)
    if "prefix_cache_event" not in kinds.words:
        return {}
    logged = details.codes[kinds.codes == kinds.words.index("prefix_cache_event")]
    counts = np.bincount(logged, minlength=len(details.words)).tolist()
    return {details.words[code]: count for code, count in enumerate(counts) if count}


#: Medians of fewer requests than this are not compared.
LEAST_COMPARED = 30


#: Least prompt tokens of each bucket; the longest prompts of a bucket are 25 % longer. ``np.unique`` would
#: import masked arrays: 8 ms of every start.
_BUCKETS = np.array(sorted({ceil(1.25**power) for power in range(120)}))


class Medians(NamedTuple):
    """Median TTFT (ms) of hits and of misses with ``least`` to ``most`` prompt tokens, and their counts."""

    least: int
    most: int
    hits: int
    misses: int
    hit_ms: float
    miss_ms: float


def medians_of_equal_length(
    prompts: NDArray[np.int64], hit: NDArray[np.int64], ttft_ns: NDArray[np.int64]
) -> Medians | None:
    """Return the medians in the bucket of prompt lengths with the most hits and misses.

    Prompts in a bucket differ by at most 25 %. None if no bucket has ``LEAST_COMPARED`` of both.
    """
    buckets = np.searchsorted(_BUCKETS, prompts, "right") - 1
    counts = [np.bincount(buckets[hit == kind], minlength=len(_BUCKETS)) for kind in (1, 0)]
    fewer = np.minimum(*counts)
    best = int(fewer.argmax())
    if fewer[best] < LEAST_COMPARED:
        return None
    hit_ns, miss_ns = (float(np.median(ttft_ns[(buckets == best) & (hit == kind)])) for kind in (1, 0))
    most = int(_BUCKETS[best + 1]) - 1 if best + 1 < len(_BUCKETS) else int(prompts.max())
    hits, misses = (int(by_length[best]) for by_length in counts)
    return Medians(int(_BUCKETS[best]), most, hits, misses, hit_ns / 1e6, miss_ns / 1e6)


def _sentence(counts: Counter[str], equal: Medians | None) -> str:
    """Return the number of hits and misses, the prefill saved, and the medians at equal prompt length."""
    saved = share_of(counts["cached"], counts["prompts"])
    if saved is None:
        return "no request was admitted"
    hits, misses = counts["hits"], counts["admitted"] - counts["hits"]
    text = f"{hits:,} requests hit, in full or in part, {misses:,} missed"
    if hits:
        text += f"; {100 * saved:.0f} % of prefill was saved"
    if equal is None:
        return text
    return (
        f"{text}; of {equal.least:,} to {equal.most:,} prompt tokens, {equal.hits:,} hits waited "
        f"{_shown(equal.hit_ms)} at the median, {equal.misses:,} misses {_shown(equal.miss_ms)}"
    )


def _shown(median_ms: float) -> str:
    return format_time_ms(median_ms) if median_ms >= 99_999.5 else f"{significant(median_ms)} ms"
