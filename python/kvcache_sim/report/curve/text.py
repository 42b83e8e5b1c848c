"""The curve as a table for people, and as CSV."""

from __future__ import annotations

import csv
import io
from textwrap import wrap
from typing import Any

from kvcache_sim.base.output import csv_field
from kvcache_sim.base.units import format_bytes, format_percent
from kvcache_sim.report.curve.build import Document
from kvcache_sim.report.plain_table import labelled, side_by_side, terminal_width

_SESSIONS_SHOWN = 10
#: Columns of the labels of the reference points.
_LABEL = 14
_ORDERS = {"tail": "released tail first", "root": "touched root first"}


def curve_table(document: Document) -> str:
    """Return the curve as text: a row a capacity, a column a policy, then the reference points."""
    points = document["points"]
    policies = [name for name in points[0] if not name.startswith("capacity_")] if points else ["lru"]
    sized = document["kv_bytes_per_token"] is not None
    head = ["blocks", *(["size"] if sized else []), *policies]
    rows = [
        [
            f"{point['capacity_blocks']:,}",
            *([format_bytes(point["capacity_bytes"])] if sized else []),
            *(_cell(point[policy]) for policy in policies),
        ]
        for point in points
    ]
    lines = [
        f"{document['n_requests']:,} requests, {document['queried_blocks']:,} blocks of "
        f"{document['block_size']:,} tokens",
        f"hit rate of blocks, {_ORDERS[document['order']]}:",
        *_aligned([head, *rows]),
    ]
    if "sample" in document:
        sample = document["sample"]
        share = format_percent(sample["rate"])
        lines.append(
            f"estimated from {sample['ids']:,} ids ({share} of all); ± holds at all in 95 % of samples"
        )
        return "\n".join(lines)
    lines += ["", *_reference_lines(document)]
    if "lower_tier" in document:
        lines += ["", *_lower_tier_lines(document["lower_tier"])]
    if "sessions" in document:
        lines += ["", *_session_lines(document["sessions"])]
    return "\n".join(lines)


def curve_csv(document: Document) -> str:
    """Return the curve as CSV: a row a capacity and policy; every corner of lru where they were asked for."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["policy", "capacity_blocks", "capacity_bytes", "hit_blocks", "block_hit_rate"])
    size = document["block_size"] * (document["kv_bytes_per_token"] or 0)
    if "every_capacity" in document:
        corners = document["every_capacity"]
        references = max(1, document["queried_blocks"])
        for blocks, hits in zip(corners["capacity_blocks"], corners["hit_blocks"], strict=True):
            writer.writerow(["lru", blocks, blocks * size or "", hits, hits / references])
    for point in document["points"]:
        for name, found in point.items():
            if name.startswith("capacity_") or (name == "lru" and "every_capacity" in document):
                continue
            row = [csv_field(name), point["capacity_blocks"], point.get("capacity_bytes", "")]
            writer.writerow(
                [*row, found.get("hit_blocks", ""), found.get("block_hit_rate", found.get("hit_rate"))]
            )
    return out.getvalue()


def _cell(found: dict[str, Any]) -> str:
    rate = found.get("block_hit_rate", found.get("hit_rate", 0.0))
    error = f" ± {format_percent(found['error_rate'])}" if "error_rate" in found else ""
    return f"{format_percent(rate)}{error}"


def _reference_lines(document: Document) -> list[str]:
    top, most = document["unbounded"], document.get("upper_bound")
    distinct = f"{document['distinct_blocks']:,} distinct blocks"
    whose, lines = "these", []
    if most == top:
        whose = "the upper bound's"
        lines += labelled(
            "upper bound", f"{_rates(top)}: an unbounded cache, which holds all {distinct}", _LABEL
        )
    else:
        bound = "not computed for a trace of this length; --policy belady reads it whole"
        if most is not None:
            bound = f"{_rates(most)}: an unbounded cache, answers included"
        lines += labelled("upper bound", bound, _LABEL)
        lines += labelled("prompts alone", f"{_rates(top)}, all {distinct}; this curve counts them", _LABEL)
    if not document["landmarks"]["footprint"]["capacity_blocks"]:
        return lines
    said = {
        "knee": "beyond which more capacity pays less",
        "working_set": f"99 % of {whose} hits",
        "footprint": "all of its hits; below a tier of this size a lower tier adds none",
    }
    for name, meaning in said.items():
        point = document["landmarks"][name]
        size = f" = {format_bytes(point['capacity_bytes'])}" if "capacity_bytes" in point else ""
        where_text = f"{point['capacity_blocks']:,} blocks{size}: {format_percent(point['block_hit_rate'])}"
        lines += labelled(name.replace("_", " "), f"{where_text}, {meaning}", _LABEL)
    return lines


def _rates(found: Document) -> str:
    return (
        f"{format_percent(found['block_hit_rate'])} of blocks, {format_percent(found['hit_rate'])} of tokens"
    )


def _lower_tier_lines(tier: Document) -> list[str]:
    above = " + ".join(f"{blocks:,}" for blocks in tier["above_blocks"])
    rows = [
        [
            f"{point['capacity_blocks']:,}",
            *([format_bytes(point["capacity_bytes"])] if "capacity_bytes" in point else []),
            f"+{format_percent(point['exclusive_rate'])}",
            f"+{format_percent(point['inclusive_rate'])}",
        ]
        for point in tier["points"]
    ]
    sized = ["size"] if tier["points"] and "capacity_bytes" in tier["points"][0] else []
    found = format_percent(tier["above_block_hit_rate"])
    if len(tier["above_blocks"]) > 1:
        found += f", {format_percent(tier['above_inclusive_block_hit_rate'])} if inclusive"
    return [
        *wrap(f"hits added by a tier below {above} blocks (hit rate {found}):", terminal_width()),
        *_aligned([["blocks", *sized, "exclusive", "inclusive"], *rows]),
    ]


def _session_lines(split: Document) -> list[str]:
    hits = sum(row["unbounded_hit_blocks"] for row in split["rows"])
    same_session = split["own_unbounded_hit_blocks"]
    rows = sorted(split["rows"], key=lambda row: -row["queried_blocks"])
    table = [["session", "requests", "blocks", *(f"{c:,}" for c in split["capacity_blocks"]), "unbounded"]]
    for row in rows[:_SESSIONS_SHOWN]:
        queried = max(1, row["queried_blocks"])
        shares = [f"{h / queried:.1%}" for h in (*row["hit_blocks"], row["unbounded_hit_blocks"])]
        name = "".join(c if c.isprintable() else "?" for c in row["session"])[:40]
        table.append([name, f"{row['n_requests']:,}", f"{row['queried_blocks']:,}", *shares])
    more = len(rows) - _SESSIONS_SHOWN
    return [
        f"{same_session:,} of {hits:,} hits are on blocks that the same session touched last",
        *_aligned(table),
        *([f"and {more:,} more sessions (all with --format json)"] if more > 0 else []),
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return rows of cells as lines; columns beyond the width follow below, after the first one again."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(row[k].rjust(widths[k]) for k in group)
        for group in side_by_side(widths, terminal_width())
        for row in rows
    ]
