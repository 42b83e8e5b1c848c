"""A cache replay for people, and its requests as CSV."""

from __future__ import annotations

import csv
import io
from typing import Any

from kvcache_sim.replay.miss_causes import told_by
from kvcache_sim.report.plain_table import labelled, plain_sentences
from kvcache_sim.units import format_bytes, format_time_ns

#: Figures that the lines above the list say already, or that are tables themselves.
_SAID = {"misses", "requests", "ceilings", "share_of_possible", "hit_rate", "prefix_lookup", "plugin"}


def cachesim_text(policy: str, result: dict[str, Any]) -> str:
    """Return the share of what is possible, the misses by cause, then every figure under its name."""
    if "accesses" in result:
        lines, said = _flat_lines(policy, result), _SAID - {"misses"}
    else:
        lines, said = [plain_sentences([_sentence(policy, result)])], _SAID
        if "misses" in result:
            lines += ["", *_miss_lines(result["misses"])]
    figures = {name: value for name, value in result.items() if name not in said}
    width = max(map(len, figures)) + 2
    lines += ["", *(line for name in figures for line in labelled(name, _cell(name, figures[name]), width))]
    return "\n".join(lines)


def _sentence(policy: str, result: dict[str, Any]) -> str:
    words = f"{policy}{_size(result)}: {result.get('hit_rate', 0.0):.1%} of tokens hit"
    tops = result.get("ceilings", {})
    if "unbounded" not in tops:
        return words
    share, best, unbounded = result["share_of_possible"], tops["belady"], tops["unbounded"]
    of = "" if share is None else f": {share:.1%} of what is possible"
    best_rate, all_rate = f"{best['hit_rate']:.1%}", f"{unbounded['hit_rate']:.1%}"
    return f"{words} of {best_rate} possible at this size (Belady; unbounded {all_rate}){of}"


def _flat_lines(policy: str, result: dict[str, Any]) -> list[str]:
    """Return what a plain cache of blocks hits, and the same queue behind a prefix look-up."""
    best = result["ceilings"]["belady"]["hits"] / max(1, result["accesses"])
    words = f"{policy}{_size(result)}, flat: {result['hit_ratio']:.1%} of block accesses hit of {best:.1%}"
    lines = [plain_sentences([f"{words} possible at this size (Belady)"])]
    if "prefix_lookup" in result:
        behind = result["prefix_lookup"]
        hit = f"{behind['hit_rate']:.1%} of tokens hit, {behind['hit_blocks']:,} blocks"
        lines.append(plain_sentences([f"behind a prefix look-up: {hit}; {behind['evictions']:,} evictions"]))
    return lines


def _size(result: dict[str, Any]) -> str:
    return f", {format_bytes(result['capacity_bytes'])}" if "capacity_bytes" in result else ""


def _miss_lines(misses: dict[str, Any]) -> list[str]:
    total = max(1, misses["missed_tokens"])
    lines = [f"{misses['missed_tokens']:,} tokens missed:"]
    for cause in told_by("replay"):
        tokens = misses[f"{cause.name}_tokens"]
        label = f"  {tokens / total:6.1%}  {cause.name.replace('_', ' '):<13} "
        lines += labelled(label, cause.meaning, len(label))
    if "evicted_before_ns" in misses:
        requests, times = misses["evicted_before_requests"], misses["evicted_before_ns"]
        half, most = (f"{requests[p]:,} requests ({format_time_ns(times[p])})" for p in ("p50", "p90"))
        said = f"of the evicted, half were evicted up to {half} before, nine of ten {most}"
        lines.append(plain_sentences([said], "  "))
    return lines


def _cell(name: str, value: Any) -> str:
    if name.endswith("_sha256"):
        return str(value)[:24]  # as the digests of a run are printed; JSON has all of it
    return f"{value:,}" if isinstance(value, int) else str(value)


def requests_csv(columns: dict[str, Any]) -> bytes:
    """Return a replay's table of requests as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()
