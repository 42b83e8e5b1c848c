"""``kvsim cachesim``: policies at capacities, decision by decision, without time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from kvcache_sim.cli import replay_options
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def cachesim(
    trace: replay_options.TraceFile,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            help="blocks (sglang: pages) as 16384, '2097152 tokens', or 16GiB with --model; repeatable"
        ),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            help="a name of kvsim policies list, or file.py:Name; repeatable: each at each capacity",
            show_default="lru",
        ),
    ] = None,
    trace_block_size: replay_options.TraceBlockSize = None,
    extra_key: replay_options.ExtraKeys = None,
    synthesise_prefixes: replay_options.SynthesisePrefixes = False,
    block_size: Annotated[
        int, typer.Option("--block-size", "--page-size", help="tokens a block; divides the trace's (0: it)")
    ] = 0,
    window: Annotated[int, typer.Option(help="requests that overlap (0: one after another)", min=0)] = 0,
    outputs: replay_options.OutputsOrDefault = None,
    order: replay_options.Order = "tail",
    last_partial: replay_options.LastPartial = "drop",
    flat: Annotated[bool, typer.Option("--flat", help="a plain cache of blocks, no prefixes")] = False,
    reuse_outputs: Annotated[
        bool, typer.Option("--reuse-outputs", help="outputs have the ids of the session's next turn")
    ] = False,
    store_threshold: Annotated[
        int, typer.Option(help="vLLM's CPU offloading: store a key at its n-th offer", min=0)
    ] = 0,
    model: Annotated[
        str,
        typer.Option(
            help="a model by name or file: turns sizes into blocks; with vllm its groups share a pool"
        ),
    ] = "",
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            help="vllm (groups, --cpu-chunks), lmcache-server: tokens of a step", min=1, show_default="8192"
        ),
    ] = None,
    retention_interval: Annotated[
        str,
        typer.Option(
            help="vllm, models of groups: tokens a checkpoint; 0: where prompts end or part, null: all",
            show_default="0",
        ),
    ] = "",
    host_capacity: Annotated[
        str, typer.Option(help="sglang-unified: HiCache's host capacity, as --capacity")
    ] = "",
    write_policy: Annotated[
        Literal["write_through", "write_through_selective", "write_back"] | None,
        typer.Option(
            help="sglang-unified: when HiCache writes to the host",
            show_default="write_through with --host-capacity",
        ),
    ] = None,
    storage: Annotated[
        str, typer.Option(help="sglang-unified: HiCache's storage: unbounded, or as --capacity")
    ] = "",
    prefetch_threshold: Annotated[
        int | None,
        typer.Option(help="sglang-unified: fewest tokens from storage", min=1, show_default="256"),
    ] = None,
    chunk_tokens: Annotated[
        int, typer.Option(help="lmcache, -server, vllm: tokens a chunk of the CPU", min=0, metavar="TOKENS")
    ] = 0,
    cpu_chunks: Annotated[
        int,
        typer.Option(help="lmcache, -server: chunks of the CPU; vllm: those of its CPU offloading", min=0),
    ] = 0,
    cpu_policy: Annotated[
        Literal["lru", "arc"] | None,
        typer.Option(help="vllm: policy of its CPU offloading", show_default="lru with --cpu-chunks"),
    ] = None,
    disk_chunks: Annotated[int, typer.Option(help="lmcache, -server: chunks of the disk tier", min=0)] = 0,
    secondary_tier: Annotated[
        bool, typer.Option("--secondary-tier", help="vllm: a tier below the CPU's, which keeps all it gets")
    ] = False,
    kv_bytes_per_token: Annotated[
        int, typer.Option(help="the same as a number of bytes", min=0, metavar="BYTES")
    ] = 0,
    backend: Annotated[str, typer.Option(hidden=True)] = "",
    format: Annotated[Literal["table", "json"], typer.Option(help="what to print")] = "table",
    requests: Annotated[
        Path | None,
        typer.Option("--requests", help="also write a row a request: hits, misses by cause (.csv)"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace an existing file")] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="read a long trace whole: misses by cause, upper bounds")
    ] = False,
) -> None:
    """Replay a trace against one cache: hits, evictions, misses by cause, and upper bounds.

    \b
    Examples:
      kvsim cachesim trace.jsonl --policy lru --capacity 16384
      kvsim cachesim trace.jsonl --policy lru --policy s3fifo --capacity 65536 --capacity 1048576
      kvsim cachesim trace.jsonl --policy vllm --capacity 524288 --block-size 16 --window 32
      kvsim cachesim trace.jsonl --policy sglang:lfu --capacity '2097152 tokens' --page-size 16 --format json
      kvsim cachesim trace.jsonl --policy vllm --model gpt-oss-120b --capacity 40GiB --window 32
      kvsim cachesim trace.jsonl --policy vllm --capacity 4096 --cpu-chunks 16384 --cpu-policy arc
      kvsim cachesim trace.jsonl --policy vllm-offload:arc --capacity 80GiB --model llama-3.1-8b
      kvsim cachesim trace.jsonl --policy sglang-unified:lru --capacity '1048576 tokens' \
        --host-capacity '2097152 tokens' --write-policy write_back --page-size 16 --window 32
      kvsim cachesim trace.jsonl --policy sglang-unified:lru --capacity 65536 --host-capacity 131072 \
        --storage unbounded --page-size 16
      kvsim cachesim trace.jsonl --policy lmcache:lru --chunk-tokens 256 --cpu-chunks 8192 --disk-chunks 65536
    """
    from dataclasses import replace

    from kvcache_sim.base.errors import UsageError
    from kvcache_sim.base.output import refuse_existing, write_new
    from kvcache_sim.cli.reading import Reading
    from kvcache_sim.policies.resolve import resolve_policy
    from kvcache_sim.replay.cachesim import simulate_cache
    from kvcache_sim.replay.group_settings import group_settings
    from kvcache_sim.replay.request import DEFAULT_OUTPUTS, STEP_TOKENS, ReplayRequest, ReplayResult
    from kvcache_sim.replay.streamed import can_stream, memory_note, needs_future, replay_rows
    from kvcache_sim.report.cachesim import (
        CapacityOptions,
        cachesim_text,
        capacity_of,
        policies_text,
        requests_csv,
    )
    from kvcache_sim.report.curve.sizes import kv_bytes_per_token as bytes_of_model
    from kvcache_sim.workload.readers import ReadSettings, read_trace
    from kvcache_sim.workload.readers.read import open_rows
    from kvcache_sim.workload.readers.stream import NeedsWhole, RowStream
    from kvcache_sim.workload.sessions import unseen_changes
    from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption
    from kvcache_sim.workload.trace import Trace

    if backend:
        raise UsageError(
            "removed: the core replays every policy",
            where="--backend",
            got=backend,
            hint="leave it out; kvsim simulate --engine spec runs the specification",
        )
    if model and kv_bytes_per_token:
        raise UsageError("a model says its own", where="--kv-bytes-per-token", got=str(kv_bytes_per_token))
    if force and requests is None:
        raise UsageError("has no effect without --requests", where="--force")
    if requests is not None:
        refuse_existing(requests, force)
    names, sizes = policy or ["lru"], capacity or [""]
    pairs = [(name, size) for name in names for size in sizes]
    if requests is not None and len(pairs) > 1:
        what = f"{len(pairs)} pairs of a policy and a capacity"
        raise UsageError("a table of requests is that of one replay", where="--requests", got=what)
    group_options = (model, block_size, max_num_batched_tokens, retention_interval, cpu_chunks)
    groups_of = {name: group_settings(name, *group_options) for name in names}
    token_bytes = bytes_of_model(model) or kv_bytes_per_token
    options = CapacityOptions(
        "",
        block_size,
        host_capacity,
        write_policy or "",
        storage,
        prefetch_threshold,
        chunk_tokens,
        cpu_chunks,
        cpu_policy or "",
        disk_chunks,
        secondary_tier,
    )
    reading = ReadSettings(
        block_size=trace_block_size,
        extra_keys=tuple(extra_key or []),
        prefixes=PrefixAssumption() if synthesise_prefixes else None,
        digest=False,
    )

    def request_of(read: Trace | RowStream, name: str, size: str) -> tuple[ReplayRequest, int]:
        """Return a replay and the bytes of its blocks, 0 if unknown."""
        groups, (family, _) = groups_of[name], resolve_policy(name)
        group_bytes = groups.layout.bytes_per_block if groups else 0
        default = "computed" if groups else DEFAULT_OUTPUTS.get(family, "prompt")
        one = replace(options, capacity=size)
        request = ReplayRequest(
            read.header if isinstance(read, RowStream) else read,
            **capacity_of(name, family, one, read.block_size, token_bytes, group_bytes),
            window=window,
            outputs=outputs or default,
            touch_from=order,
            last_partial=last_partial,
            store_threshold=store_threshold,
            reuse_outputs=reuse_outputs,
            explain=not flat and not isinstance(read, RowStream),
            step_tokens=max_num_batched_tokens or STEP_TOKENS,
            groups=groups,
            discipline="flat" if flat else "prefix",
        )
        return request, group_bytes or request.block_size_tokens * token_bytes

    def results_of(read: Trace | RowStream) -> list[ReplayResult]:
        asked = [(*request_of(read, name, size), name) for name, size in pairs]
        replays = [(request, name) for request, _, name in asked]
        if isinstance(read, RowStream):
            watch = Reading(trace, 0)
            read.watch(watch)
            try:
                results = replay_rows(read, replays)
            finally:
                watch.done()
        else:
            results = [simulate_cache(request, name) for request, name in replays]
        for warning in read.warnings:
            warn(warning)
        if token_bytes:
            for result, (request, block_bytes, _) in zip(results, asked, strict=True):
                result["capacity_bytes"] = request.capacity_blocks * block_bytes
        if reuse_outputs and isinstance(read, Trace) and (unseen := unseen_changes(read)):
            warn(
                f"--reuse-outputs: {unseen:,} next turns continue a prompt that ends inside a block; "
                "ids do not show changes there, so their answers count as reused whole"
            )
        return results

    def opened() -> Trace | RowStream:
        clairvoyant = [name for name in names if needs_future(name)]
        if (
            (trace == "-" and clairvoyant)
            or not all(name in clairvoyant or can_stream(name) for name in names)
            or whole
            or requests
            or reuse_outputs
        ):
            return read_trace(trace, settings=reading)
        read = open_rows(trace, reading)
        if not (clairvoyant and isinstance(read, RowStream)):
            return read
        is_plain = Path(trace).suffix not in (".gz", ".zst")
        warn(memory_note(clairvoyant[0], Path(trace).stat().st_size if is_plain else 0))
        return read_trace(trace, settings=reading)

    try:
        results = results_of(opened())
    except NeedsWhole:
        if trace == "-":
            raise
        results = results_of(read_trace(trace, settings=reading))
    columns = [result.pop("requests", None) for result in results]
    if requests is not None:
        if columns[0] is None:
            raise UsageError("this policy keeps no table of requests", where="--requests", got=names[0])
        write_new(requests, requests_csv(columns[0]), force)
    document = results[0] if len(results) == 1 else results
    if format == "json":
        typer.echo(json.dumps(document, indent=2))
    elif len(results) == 1:
        typer.echo(cachesim_text(names[0], results[0]))
    else:
        typer.echo(policies_text([name for name, _ in pairs], results))
