"""``kvsim curve``: the hit rate at every capacity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvcache_sim.cli import replay_options
from kvcache_sim.cli.notices import remark, warn
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.report.curve.build import Document
    from kvcache_sim.workload.trace import Trace

app = verb_app()


@app.command()
def curve(
    trace: replay_options.TraceFile,
    trace_block_size: replay_options.TraceBlockSize = None,
    extra_key: replay_options.ExtraKeys = None,
    synthesise_prefixes: replay_options.SynthesisePrefixes = False,
    block_size: Annotated[int, typer.Option(help="tokens a block; divides the trace's (0: the trace's)")] = 0,
    capacity: Annotated[
        list[str] | None,
        typer.Option(
            "--capacity", help="a size to show: blocks, '2097152 tokens', or 16GiB with --model; repeatable"
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="another policy at these sizes; repeatable")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--given", help="size of a tier above the one asked about, fast to slow; repeatable"),
    ] = None,
    by_session: Annotated[bool, typer.Option("--by-session", help="split the hits by session")] = False,
    model: Annotated[str, typer.Option(help="a model whose KV bytes put sizes on the axis")] = "",
    order: replay_options.Order = "tail",
    outputs: replay_options.Outputs = "prompt",
    last_partial: replay_options.LastPartial = "drop",
    every_capacity: Annotated[
        bool, typer.Option("--every-capacity", help="write every corner of the curve (JSON, CSV, picture)")
    ] = False,
    sample: Annotated[
        float,
        typer.Option(
            help="estimate from this share of the ids, such as 0.01, or from at most so many, such as 100000"
        ),
    ] = 0.0,
    seed: Annotated[int | None, typer.Option(help="seed of the sample (default 0)", min=0)] = None,
    memory: Annotated[
        str, typer.Option(help="such as 4GiB: the exact curve where that is enough, else a sample that fits")
    ] = "",
    format: Annotated[Literal["table", "json", "csv"], typer.Option(help="what to print")] = "table",
    output: Annotated[
        list[Path] | None,
        typer.Option("-o", "--output", help="also write .json, .csv, .svg, .png or .html; repeatable"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace existing files")] = False,
) -> None:
    """Print the hit rate at every cache size, from one pass over a trace.

    \b
    Examples:
      kvsim curve trace.jsonl
      kvsim curve trace.jsonl --block-size 16 --model llama-3-70b --capacity 16GiB --capacity 64GiB
      kvsim curve trace.jsonl --model gpt-oss-120b --capacity 80GB
      kvsim curve trace.jsonl --policy lfu --policy arc -o curve.svg
      kvsim curve trace.jsonl --given 16384 --format json
    """
    from dataclasses import replace

    from kvcache_sim.base.errors import UsageError
    from kvcache_sim.base.units import format_percent
    from kvcache_sim.cli.reading import OverMemoryError, Reading, parse_memory, sample_ids
    from kvcache_sim.replay.curve.sample import LEAST_IDS
    from kvcache_sim.replay.group_settings import group_settings
    from kvcache_sim.replay.request import ReplayRequest
    from kvcache_sim.report.curve.build import CurveAsk, curve_document
    from kvcache_sim.report.curve.groups import GroupsAsk, groups_document, groups_rendered
    from kvcache_sim.report.curve.sizes import kv_bytes_per_token, parse_capacity
    from kvcache_sim.report.curve.write import check_outputs, draws, rendered, write_outputs
    from kvcache_sim.workload.readers.read import open_rows, read_trace
    from kvcache_sim.workload.readers.settings import ReadSettings
    from kvcache_sim.workload.readers.stream import NeedsWhole, RowStream
    from kvcache_sim.workload.synthetic_prefixes import PrefixAssumption

    reading = ReadSettings(
        block_size=trace_block_size,
        extra_keys=tuple(extra_key or []),
        prefixes=PrefixAssumption() if synthesise_prefixes else None,
        digest=bool(output) or format == "json",
    )
    limit = parse_memory(memory)
    if seed is not None and not sample and not limit:
        raise UsageError("a seed has no effect without --sample", where="--seed", got=str(seed))
    check_outputs(output or [], force)
    groups = group_settings("vllm", model, block_size, None, "")
    if groups is not None:
        others = (policy, given, by_session, every_capacity, sample, output, order != "tail")
        if any((*others, last_partial != "drop", outputs == "all")):
            what = "a model of windows or states has --capacity, --block-size and --format only"
            raise UsageError(what, where="--model", got=model)
        read = read_trace(trace, settings=reading)
        asked = ReplayRequest(read, block_size or read.block_size, 1, outputs="computed")
        document = groups_document(GroupsAsk(asked, groups, tuple(capacity or [])))
        typer.echo(groups_rendered(document, format))
        return
    kv_bytes = kv_bytes_per_token(model)
    most_ids = int(sample) if sample >= LEAST_IDS else 0
    rate = 0.0 if most_ids else sample
    cut = block_size not in (0, trace_block_size) and not rate
    whole = bool(policy or by_session or cut or order == "root")
    other = "--policy, --by-session, --order root and another --block-size; give a file"
    if most_ids and (whole or trace == "-"):
        hint = f"leave out {other}"
        raise UsageError("not for this curve", where="--sample", got=f"{most_ids:,} ids", hint=hint)
    if limit and (whole or sample or trace == "-"):
        hint = f"leave out --sample, {other}"
        raise UsageError("not for this curve", where="--memory", got=memory, hint=hint)

    def by_row(rate: float) -> Trace | RowStream:
        sampled = replace(reading, sample=(rate, seed or 0)) if 0 < rate < 1 else reading
        return open_rows(trace, sampled)

    def document_of(requests: Trace | RowStream, rate: float, limit: int = 0) -> Document:
        watch = Reading(trace, limit, most_ids, rate or 1.0)
        if isinstance(requests, RowStream):
            requests.watch(watch)
        size = block_size or requests.block_size
        rows = requests if isinstance(requests, RowStream) else None

        def blocks(text: str, option: str) -> int:
            return parse_capacity(text, size * kv_bytes, option, size)

        ask = CurveAsk(
            request=ReplayRequest(
                requests.header if isinstance(requests, RowStream) else requests,
                size,
                1,
                outputs=outputs,
                touch_from=order,
                last_partial=last_partial,
            ),
            capacities=tuple(blocks(text, "--capacity") for text in capacity or []),
            policies=tuple(policy or []),
            above=tuple(blocks(text, "--given") for text in given or []),
            by_session=by_session,
            every_capacity=every_capacity,
            line=draws(output or []),
            kv_bytes_per_token=kv_bytes,
            sample_rate=rate,
            seed=seed or 0,
            rows=rows,
        )
        try:
            document = curve_document(ask)
        finally:
            watch.done()
        watch.check_ids(document["sample"]["ids"] if rate else document["distinct_blocks"])
        for warning in requests.warnings:
            warn(warning)
        return document

    while True:
        try:
            requests = read_trace(trace, settings=reading) if whole else by_row(rate)
            document = document_of(requests, rate, limit)
            break
        except OverMemoryError as over:
            rate = over.rate
            most_ids, limit = sample_ids(limit) if limit else most_ids, 0
        except NeedsWhole:
            if trace == "-":
                raise
            whole, limit = True, 0
    if limit:
        remark(f"exact: its memory stays below {memory}")
    elif memory and rate:
        share = f"{format_percent(rate)} of the ids, at most {most_ids:,}"
        remark(f"the exact curve needs more than {memory}: estimated from a sample of {share}")
    elif most_ids and not rate:
        remark(f"exact: no more than {most_ids:,} distinct blocks")
    write_outputs(output or [], document, force)
    typer.echo(rendered(document, format))
