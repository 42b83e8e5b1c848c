"""A cache replay for people: its blocks from the options of ``kvsim cachesim``, and its requests as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.units import format_bytes, format_percent, format_time_ns, significant
from kvcache_sim.cache.groups import GroupSettings
from kvcache_sim.policies.resolve import resolve_policy
from kvcache_sim.replay.miss_causes import reported_by
from kvcache_sim.replay.request import (
    DEFAULT_OUTPUTS,
    STEP_TOKENS,
    LastPartial,
    Outputs,
    PromptEnd,
    ReplayRequest,
    StorageCapacity,
)
from kvcache_sim.report.curve.sizes import parse_capacity
from kvcache_sim.report.picture import Table
from kvcache_sim.report.plain_table import labelled, plain_sentences, plain_table
from kvcache_sim.workload.coarser_blocks import in_coarser_blocks
from kvcache_sim.workload.trace import Trace

#: LMCache's own default.
_CHUNK_TOKENS = 256


@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """The options as written; 0, "" and None mean that an option was not given."""

    capacity: str = ""
    block_size: int = 0
    host_capacity: str = ""
    write_policy: str | None = None
    storage: str = ""
    prefetch_threshold: int | None = None
    chunk_tokens: int = 0
    cpu_chunks: int = 0
    cpu_policy: str | None = None
    disk_chunks: int = 0
    secondary: bool = False


def cache_request(
    trace: Trace,
    policy: str,
    capacity: CapacityOptions,
    groups: GroupSettings | None,
    token_bytes: int,
    *,
    window: int = 0,
    outputs: Outputs | None = None,
    order: PromptEnd = "tail",
    last_partial: LastPartial = "drop",
    flat: bool = False,
    reuse_outputs: bool = False,
    store_threshold: int = 0,
    step_tokens: int | None = None,
    explain: bool = True,
) -> ReplayRequest:
    """Return the replay that options of ``kvsim cachesim`` ask for; raises ``UsageError`` by their names.

    The bytes of a token convert sizes into blocks; 0 is unknown.
    """
    family, _ = resolve_policy(policy)
    group_bytes = groups.layout.bytes_per_block if groups else 0
    capacities = capacity_of(policy, family, capacity, trace.block_size, token_bytes, group_bytes)
    return ReplayRequest(
        trace if groups else in_coarser_blocks(trace, capacities["block_size_tokens"]),
        **capacities,
        window=window,
        outputs=outputs or ("computed" if groups else DEFAULT_OUTPUTS.get(family, "prompt")),
        touch_from=order,
        last_partial=last_partial,
        store_threshold=store_threshold,
        reuse_outputs=reuse_outputs,
        explain=explain,
        step_tokens=step_tokens or STEP_TOKENS,
        groups=groups,
        discipline="flat" if flat else "prefix",
    )


def capacity_bytes(request: ReplayRequest, token_bytes: int) -> int:
    """Return the bytes of a replay's capacity, from those of a token."""
    if request.groups is not None:
        return request.capacity_blocks * request.groups.layout.bytes_per_block
    return request.capacity_blocks * request.block_size_tokens * token_bytes


def capacity_of(
    policy: str,
    family: str,
    options: CapacityOptions,
    trace_block_size: int,
    token_bytes: int,
    block_bytes: int,
) -> dict[str, Any]:
    """Return the capacities of a ``ReplayRequest`` by field name; raises ``UsageError``.

    ``family`` is the policy's. The bytes of a token and, where groups share a pool, of a block of it convert
    sizes into blocks; 0 is unknown.
    """
    for option, given in _useless(family, options).items():
        if given:
            raise UsageError(f"has no effect with --policy {policy}", where=option)
    if family.startswith("lmcache"):
        if not options.cpu_chunks:
            raise UsageError("chunks of the CPU tier are missing", where="--cpu-chunks", expected="≥ 1")
        return {
            "block_size_tokens": options.chunk_tokens or _CHUNK_TOKENS,
            "capacity_blocks": options.cpu_chunks,
            "disk_blocks": options.disk_chunks,
        }
    size = options.block_size or trace_block_size
    if family == "hosted":
        return {"block_size_tokens": size, "capacity_blocks": 0}
    if not options.capacity:
        raise UsageError(
            "a capacity is missing", where="--capacity", expected="blocks, '2097152 tokens', or a size"
        )

    def blocks(text: str, where: str) -> int:
        return parse_capacity(text, block_bytes or size * token_bytes, where, 0 if block_bytes else size)

    capacities: dict[str, Any] = {
        "block_size_tokens": size,
        "capacity_blocks": blocks(options.capacity, "--capacity"),
    }
    if options.cpu_chunks:
        chunk_blocks, rest = divmod(options.chunk_tokens or size, size)
        if rest:
            expected = f"a multiple of the blocks of {size} tokens"
            raise UsageError("a chunk is whole blocks", where="--chunk-tokens", expected=expected)
        capacities["cpu_blocks"] = options.cpu_chunks * chunk_blocks
        capacities["chunk_blocks"] = chunk_blocks
        capacities["cpu_policy"] = options.cpu_policy or "lru"
        capacities["secondary"] = options.secondary
    elif options.secondary:
        raise UsageError("has no effect without --cpu-chunks", where="--secondary-tier")
    elif options.chunk_tokens:
        raise UsageError("has no effect without --cpu-chunks", where="--chunk-tokens")
    elif options.cpu_policy:
        raise UsageError("has no effect without --cpu-chunks", where="--cpu-policy")
    if options.host_capacity:
        capacities["host_blocks"] = blocks(options.host_capacity, "--host-capacity")
        capacities["write_policy"] = options.write_policy or "write_through"
    elif options.write_policy or options.storage:
        option = "--write-policy" if options.write_policy else "--storage"
        raise UsageError("has no effect without --host-capacity", where=option)
    if options.storage:
        bound = None if options.storage == "unbounded" else blocks(options.storage, "--storage")
        threshold = options.prefetch_threshold
        capacities["storage"] = (
            StorageCapacity(bound) if threshold is None else StorageCapacity(bound, threshold)
        )
    elif options.prefetch_threshold is not None:
        raise UsageError("has no effect without --storage", where="--prefetch-threshold")
    return capacities


def _useless(family: str, options: CapacityOptions) -> dict[str, bool]:
    """Return option → True if it was given to a family that does not use it."""
    chunks, host = family.startswith("lmcache"), family == "sglang-unified"
    return {
        "--capacity": bool(options.capacity) and (chunks or family == "hosted"),
        "--block-size": options.block_size != 0 and chunks,
        "--host-capacity": bool(options.host_capacity) and not host,
        "--write-policy": bool(options.write_policy) and not host,
        "--storage": bool(options.storage) and not host,
        "--prefetch-threshold": options.prefetch_threshold is not None and not host,
        "--chunk-tokens": options.chunk_tokens != 0 and not chunks and family != "vllm",
        "--cpu-chunks": options.cpu_chunks != 0 and not chunks and family != "vllm",
        "--cpu-policy": bool(options.cpu_policy) and family != "vllm",
        "--secondary-tier": options.secondary and family != "vllm",
        "--disk-chunks": options.disk_chunks != 0 and not chunks,
    }


#: Figures that the lines above the list have already, or that are tables themselves.
_SAID = {"misses", "requests", "upper_bounds", "share_of_possible", "hit_rate", "prefix_lookup", "plugin"}
_SAID |= {"not_computed"}


def cachesim_text(policy: str, result: dict[str, Any]) -> str:
    """Return the share of the upper bound, the misses by cause, then every figure under its name."""
    if "accesses" in result:
        lines, said = _flat_lines(policy, result), _SAID - {"misses"}
    else:
        lines, said = [plain_sentences([_sentence(policy, result)])], _SAID
        if "misses" in result:
            lines += ["", *_miss_lines(result["misses"])]
    if "not_computed" in result:
        lines.append(plain_sentences([f"a long trace, read row by row: {result['not_computed']}"]))
    figures = {name: value for name, value in result.items() if name not in said}
    width = max(map(len, figures)) + 2
    lines += ["", *(line for name in figures for line in labelled(name, _cell(name, figures[name]), width))]
    return "\n".join(lines)


def policies_text(policies: Sequence[str], results: Sequence[dict[str, Any]]) -> str:
    """Return a row for each replay: the policy as written, its capacity, hits and evictions."""
    flat = "accesses" in results[0]
    rate, hits = ("hit_ratio", "hits") if flat else ("hit_rate", "hit_blocks")
    headings = ("policy", "capacity_blocks", rate, hits, "evictions")
    rows = tuple(
        (policy, *(_table_cell(name, result.get(name)) for name in headings[1:]))
        for policy, result in zip(policies, results, strict=True)
    )
    left_out = {f"a long trace, read row by row: {r['not_computed']}" for r in results if "not_computed" in r}
    lines = [plain_table(Table(headings, rows))]
    return "\n\n".join([*lines, *(plain_sentences([sentence]) for sentence in left_out)])


def _table_cell(name: str, value: Any) -> str | None:
    if value is None:
        return None
    return format_percent(value) if name in ("hit_rate", "hit_ratio") else f"{value:,}"


def _sentence(policy: str, result: dict[str, Any]) -> str:
    words = f"{policy}{_size(result)}: {format_percent(result.get('hit_rate', 0.0))} of tokens hit"
    tops = result.get("upper_bounds", {})
    if "unbounded" not in tops:
        return words
    share, best, unbounded = result["share_of_possible"], tops["belady"], tops["unbounded"]
    of = "" if share is None else f": {format_percent(share)} of the upper bound"
    best_rate, all_rate = (format_percent(top["hit_rate"]) for top in (best, unbounded))
    return f"{words}, at most {best_rate} at this size (Belady; unbounded {all_rate}){of}"


def _flat_lines(policy: str, result: dict[str, Any]) -> list[str]:
    """Return the hits of a plain cache of blocks, and of the same queue behind a prefix look-up."""
    words = f"{policy}{_size(result)}, flat: {format_percent(result['hit_ratio'])} of block accesses hit"
    if "upper_bounds" in result:
        best = result["upper_bounds"]["belady"]["hits"] / max(1, result["accesses"])
        words += f", at most {format_percent(best)} at this size (Belady)"
    lines = [plain_sentences([words])]
    if "prefix_lookup" in result:
        behind = result["prefix_lookup"]
        hit = f"{format_percent(behind['hit_rate'])} of tokens hit, {behind['hit_blocks']:,} blocks"
        lines.append(plain_sentences([f"behind a prefix look-up: {hit}; {behind['evictions']:,} evictions"]))
    return lines


def _size(result: dict[str, Any]) -> str:
    return f", {format_bytes(result['capacity_bytes'])}" if "capacity_bytes" in result else ""


def _miss_lines(misses: dict[str, Any]) -> list[str]:
    total = max(1, misses["missed_tokens"])
    lines = [f"{misses['missed_tokens']:,} tokens missed:"]
    found = {cause: tokens for cause in reported_by("replay") if (tokens := misses[f"{cause.name}_tokens"])}
    width = max([13, *(len(cause.name) for cause in found)])
    for cause, tokens in found.items():
        label = f"  {format_percent(tokens / total):>7}  {cause.name.replace('_', ' '):<{width}} "
        lines += labelled(label, cause.meaning, len(label))
    if "evicted_before_ns" in misses:
        requests, times = misses["evicted_before_requests"], misses["evicted_before_ns"]
        half, most = (f"{requests[p]:,} requests ({format_time_ns(times[p])})" for p in ("p50", "p90"))
        said = f"evicted before reuse by {half} at the median, {most} at p90"
        lines.append(plain_sentences([said], "  "))
    return lines


def _cell(name: str, value: Any) -> str:
    if name.endswith("_sha256"):
        return str(value)[:24]  # shortened as the digests of a run; JSON has the whole digest
    if isinstance(value, float):
        return significant(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def requests_csv(columns: dict[str, Any]) -> bytes:
    """Return a replay's table of requests as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()
