"""``kvsim cachesim``: one policy at one capacity, decision by decision, without time."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.cli import replay_options
from kvcache_sim.cli.replay_options import LastPartialChoice, OrderChoice, OutputsChoice
from kvcache_sim.cli.verb import verb_app

app = verb_app()


class OutputFormat(StrEnum):
    """What is printed."""

    table = "table"
    json = "json"


class BackendChoice(StrEnum):
    """Who decides: the native core, or the slow reference in Python."""

    native = "native"
    python = "python"


@app.command()
def cachesim(
    trace: replay_options.TraceFile,
    capacity: Annotated[
        str,
        typer.Option(help="blocks (sglang: pages) as 16384, '2097152 tokens', or 16GiB with --model"),
    ],
    policy: Annotated[str, typer.Option(help="a name of kvsim policies list, or file.py:Name")] = "lru",
    trace_block_size: replay_options.TraceBlockSize = None,
    block_size: Annotated[
        int, typer.Option("--block-size", "--page-size", help="tokens a block; divides the trace's (0: it)")
    ] = 0,
    window: Annotated[int, typer.Option(help="requests that overlap (0: one after another)", min=0)] = 0,
    outputs: replay_options.OutputsOrDefault = None,
    order: replay_options.Order = OrderChoice.tail,
    last_partial: replay_options.LastPartial = LastPartialChoice.drop,
    flat: Annotated[bool, typer.Option("--flat", help="a plain cache of blocks, no prefixes")] = False,
    reuse_outputs: Annotated[
        bool, typer.Option("--reuse-outputs", help="outputs have the ids of the session's next turn")
    ] = False,
    store_threshold: Annotated[
        int, typer.Option(help="vllm-offload: store a key at its n-th offer", min=0)
    ] = 0,
    model: Annotated[
        str,
        typer.Option(
            help="a model by name or file: turns sizes into blocks; with vllm its groups share a pool"
        ),
    ] = "",
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="vllm, models of groups: tokens of a step", min=1, show_default="8192")
    ] = None,
    retention_interval: Annotated[
        str,
        typer.Option(
            help="vllm, models of groups: tokens a checkpoint; 0: where prompts end or part, null: all",
            show_default="0",
        ),
    ] = "",
    kv_bytes_per_token: Annotated[
        int, typer.Option(help="the same as a number of bytes", min=0, metavar="BYTES")
    ] = 0,
    backend: Annotated[
        BackendChoice, typer.Option(help="the native core, or the slow reference in Python")
    ] = BackendChoice.native,
    format: Annotated[OutputFormat, typer.Option(help="what to print")] = OutputFormat.table,
    requests: Annotated[
        Path | None,
        typer.Option("--requests", help="also write a row a request: hits, misses by cause (.csv)"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace an existing file")] = False,
) -> None:
    """Replay a trace against one cache: hits, evictions, why blocks were missed, and what was possible.

    \b
    Examples:
      kvsim cachesim trace.jsonl --policy lru --capacity 16384
      kvsim cachesim trace.jsonl --policy vllm --capacity 524288 --block-size 16 --window 32
      kvsim cachesim trace.jsonl --policy sglang:lfu --capacity '2097152 tokens' --page-size 16 --format json
      kvsim cachesim trace.jsonl --policy vllm --model gpt-oss-120b --capacity 40GiB --window 32
      kvsim cachesim trace.jsonl --policy vllm-offload:arc --capacity 80GiB --model llama-3-8b
    """
    from kvcache_sim.errors import UsageError
    from kvcache_sim.output import refuse_existing, write_new
    from kvcache_sim.replay.cachesim import simulate_cache
    from kvcache_sim.replay.group_settings import group_settings
    from kvcache_sim.replay.request import ReplayRequest
    from kvcache_sim.report.cachesim import cachesim_text, requests_csv
    from kvcache_sim.report.curve.sizes import kv_bytes_per_token as bytes_of_model
    from kvcache_sim.report.curve.sizes import parse_capacity
    from kvcache_sim.workload.readers import ReadSettings, read_trace

    if model and kv_bytes_per_token:
        raise UsageError("a model says its own", where="--kv-bytes-per-token", got=str(kv_bytes_per_token))
    if force and requests is None:
        raise UsageError("has no effect without --requests", where="--force")
    if requests is not None:
        refuse_existing(requests, force)
    groups = group_settings(policy, model, block_size, max_num_batched_tokens, retention_interval)
    token_bytes = bytes_of_model(model) or kv_bytes_per_token
    read = read_trace(trace, settings=ReadSettings(block_size=trace_block_size))
    size = block_size or read.block_size
    block_bytes = groups.layout.bytes_per_block if groups else size * token_bytes
    blocks = parse_capacity(capacity, block_bytes, "--capacity", 0 if groups else size)
    if outputs is None:
        outputs = OutputsChoice.computed if groups else OutputsChoice.prompt
    result = simulate_cache(
        ReplayRequest(
            read,
            size,
            blocks,
            window=window,
            outputs=outputs.value,
            touch_from=order.value,
            last_partial=last_partial.value,
            backend=backend.value,
            store_threshold=store_threshold,
            reuse_outputs=reuse_outputs,
            explain=not flat,
            groups=groups,
            discipline="flat" if flat else "prefix",
        ),
        policy,
    )
    for warning in read.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if token_bytes:
        result["capacity_bytes"] = blocks * block_bytes
    columns = result.pop("requests", None)
    if requests is not None:
        if columns is None:
            raise UsageError("this policy keeps no table of requests", where="--requests", got=policy)
        write_new(requests, requests_csv(columns), force)
    typer.echo(json.dumps(result, indent=2) if format.value == "json" else cachesim_text(policy, result))
