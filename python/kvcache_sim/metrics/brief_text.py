"""The summary in a few lines, for runs that another command compares or explains."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import wrap
from typing import Any

from kvcache_sim.metrics.summary_text import labelled, measured, number, percent, throughput

_UNSERVED = ("rejected", "failed", "aborted")


def brief_text(summary: Mapping[str, Any], title: str, subject: str) -> str:
    """Return what was simulated, ``title``, and the first figures asked for, in 80 columns."""
    ttft, tpot = summary["latency"]["ttft"], summary["latency"]["tpot"]
    turned_away = [f"{n:,} {name}" for name, n in summary["requests"].items() if n and name in _UNSERVED]
    lines = [
        *wrap(subject, 80, break_long_words=True),
        title[:80],
        *([f"requests   {'  '.join(turned_away)}"] if turned_away else []),
        *measured(summary.get("measure")),
        f"hit rate   {percent(summary['cache']['token_hit_rate']).strip()} of tokens",
        f"ms         TTFT mean {number(ttft['avg'])}, p50 {number(ttft['p50'])}, p99 {number(ttft['p99'])}; "
        f"TPOT mean {number(tpot['avg'])}",
        f"throughput {throughput(summary['throughput'])}",
    ]
    for tier in summary["tiers"].values():
        if tier["no_effect"]:
            lines += labelled("no effect", tier["no_effect"])
    return "\n".join(lines)
