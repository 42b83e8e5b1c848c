"""The hit rate by size of a model of windows, chunks or states, jointly and by group: a replay a size."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_bytes, format_percent
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.replay.kv_groups import replay_groups, total_positions
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.report.curve.sizes import parse_capacity

#: Most blocks of a pool for which an upper bound is computed; each takes some 25 bytes.
_MOST_UPPER_BOUND_BLOCKS = 1 << 25
#: Default sizes of a GPU's KV cache.
_DEFAULT_SIZES = ("10GB", "20GB", "40GB", "80GB", "160GB", "320GB", "640GB", "1280GB")


@dataclass(frozen=True, slots=True)
class GroupsAsk:
    """A trace's requests, the groups, and the sizes to show (blocks or bytes as text; none: eight sizes)."""

    request: ReplayRequest
    settings: GroupSettings
    capacities: tuple[str, ...] = ()


def groups_document(ask: GroupsAsk) -> dict[str, Any]:
    """Return the points: capacity, hits of the groups, of each alone, and of the layers with full attention.

    A model with a layer that keeps a state has no figure for full attention. ``upper_bound`` has the hits in
    a pool without evictions; None where it needs too many blocks. Costs a replay or two a size.
    """
    layout = ask.settings.layout
    full = _full_attention(layout)
    points = []
    for text in ask.capacities or _DEFAULT_SIZES:
        blocks = _blocks(text, layout.bytes_per_block)
        point: dict[str, Any] = {"capacity_blocks": blocks, "capacity_bytes": blocks * layout.bytes_per_block}
        point["groups"] = _hits(ask, layout, blocks)
        if full is not None:
            point["full_attention"] = _hits(ask, full, point["capacity_bytes"] // full.bytes_per_block)
        points.append(point)
    return {
        "trace": ask.request.trace.source,
        "n_requests": len(ask.request.trace),
        "model": ask.settings.model,
        "group_kinds": [group.name for group in layout.groups],
        "group_block_sizes": [group.block_size_tokens for group in layout.groups],
        "bytes_per_block": layout.bytes_per_block,
        "retention_interval": ask.settings.retention_interval,
        "points": points,
        "upper_bound": _upper_bound(ask),
    }


def _upper_bound(ask: GroupsAsk) -> dict[str, Any] | None:
    """Return the hits in a pool that has a block for every position of every request."""
    layout, tokens = ask.settings.layout, ask.request.trace.input_tokens
    blocks = total_positions(layout, tokens + np.maximum(ask.request.trace.output_tokens, 1))
    if not 0 < blocks <= _MOST_UPPER_BOUND_BLOCKS:
        return None
    return {"groups": _hits(ask, layout, blocks)}


def _full_attention(layout: KvLayout) -> KvLayout | None:
    """Return the same layers as one group of full attention, None where one keeps a state or running sums."""
    layers = tuple(sorted(layer for group in layout.groups for layer in group.layers))
    if any(group.kind == "linear" for group in layout.groups) or len(set(layers)) < len(layers):
        return None
    align = layout.scheduler_block_size
    # Bytes of a common block of tokens, over all layers.
    total = sum(
        layout.page_bytes * (align // group.block_size_tokens) * len(group.layers) for group in layout.groups
    )
    return KvLayout((KvGroup("full", align, 0, layers),), total, 1)


def _blocks(text: str, block_bytes: int) -> int:
    blocks = parse_capacity(text, block_bytes, "--capacity", 0)
    if not 1 <= blocks < 2**31:
        raise UsageError("capacity out of range", "--capacity", repr(text), "1 to 2³¹ − 1 blocks")
    return blocks


def _hits(ask: GroupsAsk, layout: KvLayout, blocks: int) -> dict[str, Any]:
    if not blocks:
        return {"hit_tokens": 0, "hit_rate": 0.0, "alone_hit_rates": {}}
    settings = replace(ask.settings, layout=layout)
    found = replay_groups(replace(ask.request, capacity_blocks=blocks, groups=settings), settings, alone=True)
    figures = {name: found[name] for name in ("hit_tokens", "hit_rate", "rejected_requests")}
    if len(layout.groups) > 1:
        queried = found["queried_tokens"] or 1
        alone = zip(found["group_kinds"], found["alone_hit_tokens"], strict=True)
        figures["alone_hit_rates"] = {kind: tokens / queried for kind, tokens in alone}
    return figures


def groups_rendered(document: dict[str, Any], form: str) -> str:
    """Return the document as a table, CSV or JSON."""
    if form == "json":
        return json.dumps(document, indent=2)
    names = [name for name in ("groups", "full_attention") if name in document["points"][0]]
    if form == "csv":
        return _csv(document, names)
    sizes = Counter(zip(document["group_kinds"], document["group_block_sizes"], strict=True))
    groups = ", ".join(
        f"{count} x {kind} in blocks of {size}" if count > 1 else f"{kind} in blocks of {size}"
        for (kind, size), count in sizes.items()
    )
    kinds = list(dict.fromkeys(document["group_kinds"]))
    kinds = kinds if len(document["group_kinds"]) > 1 else []
    heads = [name.replace("_", " ") for name in names] + [f"{kind} alone" for kind in kinds]
    lines = [
        f"{document['model']}: {groups}",
        f"{document['bytes_per_block']:,} bytes per block, the same for each group",
        "hit rate of prompt tokens, requests one after another: of all groups together,",
        "and of the layers of one kind alone",
        f"{'size':>9} {'blocks':>10} " + " ".join(f"{head:>14}" for head in heads),
    ]
    for point in document["points"]:
        size = f"{format_bytes(point['capacity_bytes']):>9} {point['capacity_blocks']:10,}"
        lines.append(f"{size} {_shares(point, names, kinds)}")
    if document["upper_bound"] is not None:
        lines.append(f"{'unbounded':>9} {'':10} {_shares(document['upper_bound'], names, kinds)}")
    return "\n".join(line.rstrip() for line in lines)


def _shares(point: dict[str, Any], names: list[str], kinds: list[str]) -> str:
    """Return a line's shares; full attention has no upper bound of its own."""
    shares = [_percent(point[name]["hit_rate"]) if name in point else " " * 14 for name in names]
    alone = point["groups"]["alone_hit_rates"] if kinds else {}
    return " ".join([*shares, *(_percent(alone.get(kind, 0.0)) for kind in kinds)])


def _percent(share: float) -> str:
    return f"{format_percent(share):>14}"


def _csv(document: dict[str, Any], names: list[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["kind", "capacity_blocks", "capacity_bytes", "hit_tokens", "hit_rate"])
    for point in document["points"]:
        for name in names:
            size = (point["capacity_blocks"], point["capacity_bytes"])
            writer.writerow([name, *size, point[name]["hit_tokens"], point[name]["hit_rate"]])
    return out.getvalue().rstrip("\n")
