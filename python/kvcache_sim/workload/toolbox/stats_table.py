"""The statistics of a trace as lines for people, at most 80 columns."""

from __future__ import annotations

from typing import Any

_ORDER = ("avg", "min", "max", "p99", "p90", "p75", "p50", "std")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1000 else f"{value:.3g}"


def table(stats: dict[str, Any]) -> str:
    """Return the table: totals, three plainly named hit rates, and distributions in AIPerf's order."""
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
