"""The hit rate by size of a model of windows, chunks or states: one replay of vLLM's pool a size."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass, replace
from typing import Any

from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.errors import UsageError
from kvcache_sim.model.kv_groups import KvGroup, KvLayout
from kvcache_sim.replay.kv_groups import replay_groups
from kvcache_sim.replay.request import ReplayRequest
from kvcache_sim.units import format_bytes, parse_size_bytes

#: Sizes of a GPU's room for KV where none is asked for.
_DEFAULT_SIZES = ("10GB", "20GB", "40GB", "80GB", "160GB", "320GB", "640GB", "1280GB")


@dataclass(frozen=True, slots=True)
class GroupsAsk:
    """A trace's requests, the groups, and the sizes to show (blocks or bytes as text; none: eight sizes)."""

    request: ReplayRequest
    settings: GroupSettings
    capacities: tuple[str, ...] = ()


def groups_document(ask: GroupsAsk) -> dict[str, Any]:
    """Return the points: capacity, hits of the groups, and of the same layers with full attention.

    Without the last where a layer keeps a state, for it has no such twin. Costs a replay or two a size.
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
    }


def _full_attention(layout: KvLayout) -> KvLayout | None:
    """Return the same layers as one group of full attention, None where one keeps a state."""
    if any(group.kind == "linear" for group in layout.groups):
        return None
    align = layout.scheduler_block_size
    layers = tuple(sorted(layer for group in layout.groups for layer in group.layers))
    # Bytes of a common block of tokens, over all layers.
    total = sum(
        layout.page_bytes * (align // group.block_size_tokens) * len(group.layers) for group in layout.groups
    )
    return KvLayout((KvGroup("full", align, 0, layers),), total, 1)


def _blocks(text: str, block_bytes: int) -> int:
    digits = text.strip().removesuffix("blocks").strip().replace("_", "").replace(",", "")
    blocks = int(digits) if digits.isdecimal() else parse_size_bytes(text) // block_bytes
    if not 1 <= blocks < 2**31:
        raise UsageError("capacity out of range", "--capacity", repr(text), "1 to 2³¹ − 1 blocks")
    return blocks


def _hits(ask: GroupsAsk, layout: KvLayout, blocks: int) -> dict[str, Any]:
    if not blocks:
        return {"hit_tokens": 0, "hit_rate": 0.0}
    settings = replace(ask.settings, layout=layout)
    found = replay_groups(replace(ask.request, capacity_blocks=blocks, groups=settings), settings)
    return {name: found[name] for name in ("hit_tokens", "hit_rate", "rejected_requests")}


def groups_rendered(document: dict[str, Any], form: str) -> str:
    """Return the document as a table, CSV or JSON."""
    if form == "json":
        return json.dumps(document, indent=2)
    names = [name for name in ("groups", "full_attention") if name in document["points"][0]]
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["kind", "capacity_blocks", "capacity_bytes", "hit_tokens", "hit_rate"])
        for point in document["points"]:
            for name in names:
                size = (point["capacity_blocks"], point["capacity_bytes"])
                writer.writerow([name, *size, point[name]["hit_tokens"], point[name]["hit_rate"]])
        return out.getvalue().rstrip("\n")
    groups = ", ".join(
        f"{kind} in blocks of {size}"
        for kind, size in zip(document["group_kinds"], document["group_block_sizes"], strict=True)
    )
    lines = [
        f"{document['model']}: {groups}; {document['bytes_per_block']:,} bytes a block",
        "share of prompt tokens hit, requests one after another",
        f"{'size':>10} {'blocks':>12} " + " ".join(f"{name.replace('_', ' '):>15}" for name in names),
    ]
    for point in document["points"]:
        shares = " ".join(f"{point[name]['hit_rate']:15.2%}" for name in names)
        lines.append(f"{format_bytes(point['capacity_bytes']):>10} {point['capacity_blocks']:12,} {shares}")
    return "\n".join(lines)
