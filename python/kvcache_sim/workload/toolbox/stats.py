"""Statistics of a trace: lengths, arrivals, sharing, reuse, upper bounds, working set; as text and chart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim._core import reuse_distances
from kvcache_sim.workload.trace import NO_SESSION, OPEN_LOOP, Trace


@dataclass(frozen=True, slots=True)
class UnboundedHits:
    """Leading blocks of each prompt that an earlier prompt contains; a partial last block counts as one."""

    blocks: NDArray[np.int64]
    tokens: NDArray[np.int64]
    #: Counts of the trace, for the rates.
    references: NDArray[np.int64]
    input_tokens: NDArray[np.int64]

    @property
    def block_rate(self) -> float:
        """Return the share of block references that hit."""
        return float(self.blocks.sum() / max(1, self.references.sum()))

    @property
    def token_rate(self) -> float:
        """Return the share of input tokens that hit."""
        return float(self.tokens.sum() / max(1, self.input_tokens.sum()))

    @property
    def request_mean_rate(self) -> float:
        """Return the mean over requests of the share of blocks that hit (0 for a request without blocks)."""
        return float(np.mean(self.blocks / np.maximum(1, self.references))) if len(self.blocks) else 0.0


def unbounded_hits(trace: Trace) -> UnboundedHits:
    """Return the leading hits of every request. Cost: a few passes over the ids."""
    counts = np.diff(trace.id_offsets)
    row = np.repeat(np.arange(len(trace)), counts)
    first = np.empty(trace.distinct_ids, np.int64)
    first[trace.block_ids[::-1]] = row[::-1]  # the last write of an id is its first row
    misses = np.append(np.flatnonzero(first[trace.block_ids] == row), len(row))
    start = trace.id_offsets[:-1]
    leading = np.minimum(misses[np.searchsorted(misses, start)], trace.id_offsets[1:]) - start
    tokens = np.minimum(leading * trace.block_size, trace.input_tokens)
    return UnboundedHits(leading, tokens, counts, trace.input_tokens)


#: Number of windows of the working set over time.
WINDOWS = 20


def describe(values: NDArray[Any]) -> dict[str, float]:
    """Return avg, min, max, p99, p90, p75, p50, std in AIPerf's order; percentiles by nearest rank."""
    if not len(values):
        return {}
    ordered = np.sort(values)
    ranks = {p: ordered[max(0, -(-p * len(ordered) // 100) - 1)].item() for p in (99, 90, 75, 50)}
    return {
        "avg": float(np.mean(ordered)),
        "min": ordered[0].item(),
        "max": ordered[-1].item(),
        **{f"p{p}": value for p, value in ranks.items()},
        "std": float(np.std(ordered)),
    }


def trace_stats(trace: Trace) -> dict[str, Any]:
    """Return the statistics of a trace as one tree of plain values (docs/how-to/traces-and-workloads.md).

    Cost: a few passes over the ids and n log n for the reuse distances; 0.1 s for 288,500 references.
    """
    hits = unbounded_hits(trace)
    distance = reuse_distances(np.ascontiguousarray(trace.block_ids))
    first = trace.block_ids[trace.id_offsets[:-1][np.diff(trace.id_offsets) > 0]]
    return {
        "source": trace.source,
        "sha256": trace.sha256,
        "requests": len(trace),
        "sessions": len(trace.session_names),
        "turns_per_session": describe(np.bincount(trace.session[trace.session != NO_SESSION])),
        "closed_loop_requests": int(np.count_nonzero(trace.think_ns != OPEN_LOOP)),
        "tokens": {"input": int(trace.input_tokens.sum()), "output": int(trace.output_tokens.sum())},
        "input_tokens": describe(trace.input_tokens),
        "output_tokens": describe(trace.output_tokens),
        "arrivals": _arrivals(trace),
        "blocks": {
            "block_size": trace.block_size,
            "references": len(trace.block_ids),
            "distinct": trace.distinct_ids,
            "repeats": len(trace.block_ids) - trace.distinct_ids,
            "prefix_groups": len(np.unique(first)),
        },
        "unbounded_hit_rate": {
            "blocks": hits.block_rate,
            "tokens": hits.token_rate,
            "mean_over_requests": hits.request_mean_rate,
        },
        "reuse_distance_blocks": describe(distance[distance >= 0]),
        "reuse_time_s": describe(_reuse_times_ns(trace) / 1e9),
        "working_set": _working_set(trace),
    }


def _arrivals(trace: Trace) -> dict[str, Any]:
    open_loop = np.sort(trace.arrival_ns[trace.think_ns == OPEN_LOOP])
    if not len(open_loop):
        return {"distinct_times": 0}
    gaps = np.diff(open_loop)
    span_ns = int(open_loop[-1] - open_loop[0])
    seconds = np.bincount((open_loop - open_loop[0]) // 10**9) if span_ns < 10**16 else np.empty(0, np.int64)
    return {
        "distinct_times": len(np.unique(open_loop)),
        "span_s": span_ns / 1e9,
        "requests_per_s": (len(open_loop) - 1) / (span_ns / 1e9) if span_ns else None,
        "gap_s": describe(gaps / 1e9),
        # 1 for Poisson arrivals: standard deviation over mean of the gaps.
        "gap_variation": float(np.std(gaps) / np.mean(gaps)) if span_ns else None,
        # 1 for Poisson arrivals: variance over mean of the requests in each second.
        "dispersion_per_s": float(np.var(seconds) / np.mean(seconds)) if len(seconds) > 1 else None,
    }


def _reuse_times_ns(trace: Trace) -> NDArray[np.int64]:
    """Return the time between each reference of a block and the previous one."""
    order = np.argsort(trace.block_ids, kind="stable")
    ids = trace.block_ids[order]
    at = np.repeat(trace.arrival_ns, np.diff(trace.id_offsets))[order]
    gaps: NDArray[np.int64] = np.diff(at)[ids[1:] == ids[:-1]]
    return gaps


def _working_set(trace: Trace) -> list[dict[str, Any]]:
    """Return, for each of equal time windows, the distinct blocks referenced in it and up to its end."""
    if not len(trace.block_ids):
        return []
    start, end = int(trace.arrival_ns.min()), int(trace.arrival_ns.max())
    width = max(1, -(-(end - start + 1) // WINDOWS))
    window = np.repeat((trace.arrival_ns - start) // width, np.diff(trace.id_offsets))
    pairs = np.sort(window * trace.distinct_ids + trace.block_ids)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    within = np.bincount(pairs // trace.distinct_ids, minlength=WINDOWS)
    first = np.full(trace.distinct_ids, WINDOWS)
    first[(pairs % trace.distinct_ids)[::-1]] = (pairs // trace.distinct_ids)[::-1]
    seen = np.cumsum(np.bincount(first, minlength=WINDOWS)[:WINDOWS])
    return [
        {"until_s": (start + (k + 1) * width) / 1e9, "blocks": int(within[k]), "seen": int(seen[k])}
        for k in range(WINDOWS)
    ]


_ORDER = ("avg", "min", "max", "p99", "p90", "p75", "p50", "std")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3g}"


def table(stats: dict[str, Any]) -> str:
    """Return the table: totals, three named hit rates, and distributions in AIPerf's order."""
    blocks, rates, arrivals = stats["blocks"], stats["unbounded_hit_rate"], stats["arrivals"]
    lines = [
        f"{stats['requests']:,} requests, {stats['sessions']:,} sessions, "
        f"{stats['tokens']['input']:,} input and {stats['tokens']['output']:,} output tokens",
        f"{blocks['references']:,} references to {blocks['distinct']:,} distinct blocks of "
        f"{blocks['block_size']} tokens: {blocks['repeats']:,} repeats",
        f"prefix groups (distinct first blocks): {blocks['prefix_groups']:,}",
        "",
        "An unbounded cache, requests one after another, would find of the prompts",
        f"  {rates['blocks']:.6f}  of all blocks (a last partial block counts as one)",
        f"  {rates['tokens']:.7f} of all input tokens",
        f"  {rates['mean_over_requests']:.7f} as the mean over requests of the share of blocks",
        "            (what AIPerf prints as its hit rate)",
        "",
        f"arrivals at {arrivals['distinct_times']:,} distinct times in {_number(arrivals.get('span_s'))} s: "
        f"{_number(arrivals.get('requests_per_s'))} requests/s",
        f"burstiness (1: Poisson): gaps {_number(arrivals.get('gap_variation'))}, "
        f"requests in a second {_number(arrivals.get('dispersion_per_s'))}",
        "",
        " " * 16 + "".join(f"{name:>8}" for name in _ORDER),
    ]
    for label, key in (
        ("input tokens", "input_tokens"),
        ("output tokens", "output_tokens"),
        ("reuse distance", "reuse_distance_blocks"),
        ("reuse time s", "reuse_time_s"),
        ("turns a session", "turns_per_session"),
    ):
        if stats[key]:
            lines.append(f"{label:<16}" + "".join(f"{_number(stats[key][name]):>8}" for name in _ORDER))
    if stats["working_set"]:
        peak = max(w["blocks"] for w in stats["working_set"])
        bars = "".join(" ▁▂▃▄▅▆▇█"[round(8 * w["blocks"] / peak)] for w in stats["working_set"])
        lines += ["", f"distinct blocks in each of {len(bars)} windows, up to {peak:,}: {bars}"]
    return "\n".join(lines)


WIDTH, HEIGHT, MARGIN = 640, 300, 50


def working_set_svg(stats: dict[str, Any]) -> str:
    """Return an SVG: distinct blocks referenced in each window (bars) and up to its end (line)."""
    windows = stats["working_set"]
    top = max((w["seen"] for w in windows), default=1)
    step = (WIDTH - 2 * MARGIN) / max(1, len(windows))

    def x(k: float) -> float:
        return round(MARGIN + k * step, 1)

    def y(blocks: int) -> float:
        return round(HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * blocks / top, 1)

    base = HEIGHT - MARGIN
    bars = "".join(
        f'<rect x="{x(k + 0.1)}" y="{y(w["blocks"])}" width="{step * 0.8:.1f}" '
        f'height="{base - y(w["blocks"]):.1f}" fill="#4c78a8"/>'
        for k, w in enumerate(windows)
    )
    line = " ".join(f"{x(k + 1)},{y(w['seen'])}" for k, w in enumerate(windows))
    end = windows[-1]["until_s"] if windows else 0
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
        f'<text x="{MARGIN}" y="20">Distinct blocks: in a window (bars), so far (line), up to {top:,}</text>'
        f'{bars}<polyline points="{x(0)},{base} {line}" fill="none" stroke="#e45756" stroke-width="2"/>'
        f'<line x1="{MARGIN}" y1="{base}" x2="{WIDTH - MARGIN}" y2="{base}" stroke="black"/>'
        f'<text x="{MARGIN}" y="{base + 20}">0 s</text>'
        f'<text x="{WIDTH - MARGIN}" y="{base + 20}" text-anchor="end">{end:,.0f} s</text></svg>\n'
    )
