"""The pictures, one a file; this table is the order of the report and the list of ``kvsim plot``."""

from __future__ import annotations

#: kind → (module with ``draw(runs) -> Picture | NothingToDraw``, one line of help).
PICTURES: dict[str, tuple[str, str]] = {
    "hit-curve": ("hit_curve", "hit rate over cache size, with this run, the knee and the ceilings"),
    "ttft": ("ttft_distribution", "TTFT split by full hit, partial hit and miss"),
    "ttft-by-tier": ("ttft_by_tier", "TTFT split by the slowest tier a request read from"),
    "tpot": ("tpot_distribution", "TPOT split by full hit, partial hit and miss"),
    "waterfall": ("waterfall", "what TTFT is made of, at p50, p90 and p99"),
    "occupancy": ("occupancy", "blocks of each tier over time, by state"),
    "queue": ("queue", "sequences waiting, running and loading over time"),
    "channels": ("channels", "use of each channel over time, and waiting on it"),
    "machines": ("machines", "machine × prefix: where requests that share a prefix were served"),
    "sessions": ("sessions", "what is left of a session's prefix at its next turn, by gap and tier"),
    "survival": ("survival", "how much of a session's context survives its idle time"),
    "misses": ("misses", "why prompt tokens were not served from a cache"),
}
