"""``kvsim curve``: the hit rate at every capacity."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.notices import remark, warn
from kvcache_sim.cli.reading import OverMemoryError, Reading, parse_memory, sample_ids
from kvcache_sim.cli.replay_options import OUTPUTS, LastPartial, Order, Outputs, TraceFile, TraceKeys
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.cache.groups import GroupSettings
    from kvcache_sim.report.curve.build import CurveAsk, Document
    from kvcache_sim.workload.readers import ReadSettings
    from kvcache_sim.workload.readers.stream import RowStream
    from kvcache_sim.workload.trace import Trace

app = verb_app()


class Shown(Value):
    """The cache, and the points of its curve to show."""

    block_size: Annotated[int, "tokens a block: a divisor or multiple of the trace's (0: the trace's)"] = 0
    capacity: Annotated[
        list[str] | None, "a size to show: blocks, '2097152 tokens', or 16GiB with --model; repeatable"
    ] = None
    policy: Annotated[list[str] | None, "another policy at these sizes; repeatable"] = None
    given: Annotated[
        list[str] | None, "size of a tier above the one asked about, fast to slow; repeatable"
    ] = None
    by_session: Annotated[bool, "split the hits by session"] = False
    model: Annotated[str, "a model whose KV bytes put sizes on the axis"] = ""
    order: Order = "tail"
    outputs: Annotated[Outputs, OUTPUTS] = "prompt"
    last_partial: LastPartial = "drop"
    every_capacity: Annotated[bool, "write every corner of the curve (JSON, CSV, picture)"] = False


class Sampling(Value):
    """A sample of the ids, or the memory that decides."""

    sample: Annotated[
        float, "estimate from this share of the ids, such as 0.01, or from at most so many, such as 100000"
    ] = 0.0
    seed: Annotated[int | None, Option(help="seed of the sample (default 0)", min=0)] = None
    memory: Annotated[str, "such as 4GiB: the exact curve where that is enough, else a sample that fits"] = ""

    @property
    def most_ids(self) -> int:
        """The most ids of a sample, 0 where its share is given."""
        from kvcache_sim.replay.curve.sample import LEAST_IDS

        return int(self.sample) if self.sample >= LEAST_IDS else 0

    def first_pass(self, trace: str, shown: Shown, id_tokens: int | None) -> Pass:
        """Return what is read first; raises UsageError for a sample of a curve that needs the whole trace."""
        limit, most_ids = parse_memory(self.memory), self.most_ids
        rate = 0.0 if most_ids else self.sample
        cut = shown.block_size not in (0, id_tokens) and not rate
        whole = bool(shown.policy or shown.by_session or cut or shown.order == "root")
        other = "--policy, --by-session, --order root and another --block-size; give a file"
        if most_ids and (whole or trace == "-"):
            got, hint = f"{most_ids:,} ids", f"leave out {other}"
            raise UsageError("not for this curve", where="--sample", got=got, hint=hint)
        if limit and (whole or self.sample or trace == "-"):
            hint = f"leave out --sample, {other}"
            raise UsageError("not for this curve", where="--memory", got=self.memory, hint=hint)
        return Pass(rate, most_ids, limit, whole)


class Printed(Value):
    """The output."""

    format: Annotated[Literal["table", "json", "csv"], "what to print"] = "table"
    output: Annotated[
        list[Path] | None,
        Option("-o", "--output", help="also write .json, .csv, .svg, .png or .html; repeatable"),
    ] = None
    force: Annotated[bool, "replace existing files"] = False


class Pass(Value):
    """A pass over the trace: the share of its ids (0: all), the most ids and bytes of memory (0: any)."""

    rate: float
    most_ids: int
    limit_bytes: int
    whole: bool

    def after(self, over: OverMemoryError) -> Pass:
        """Return the pass over a sample after one that took too much."""
        most_ids = sample_ids(self.limit_bytes) if self.limit_bytes else self.most_ids
        return Pass(over.rate, most_ids, 0, self.whole)

    def opened(self, trace: str, reading: ReadSettings, seed: int) -> Trace | RowStream:
        """Return the trace whole, or row by row."""
        from kvcache_sim.workload.readers.read import open_rows, read_trace

        if self.whole:
            return read_trace(trace, settings=reading)
        sampled = 0 < self.rate < 1
        return open_rows(trace, replace(reading, sample=(self.rate, seed)) if sampled else reading)

    def remark(self, memory: str) -> None:
        """Print whether the curve is exact, where that was not known before."""
        from kvcache_sim.base.units import format_percent

        if self.limit_bytes:
            remark(f"exact: its memory stays below {memory}")
        elif memory and self.rate:
            share = f"{format_percent(self.rate)} of the ids, at most {self.most_ids:,}"
            remark(f"the exact curve needs more than {memory}: estimated from a sample of {share}")
        elif self.most_ids and not self.rate:
            remark(f"exact: no more than {self.most_ids:,} distinct blocks")


@app.command()
def curve(trace: TraceFile, keys: TraceKeys, shown: Shown, sampling: Sampling, printed: Printed) -> None:
    """Print the hit rate at every cache size, from one pass over a trace.

    \b
    Examples:
      kvsim curve trace.jsonl
      kvsim curve trace.jsonl --block-size 16 --model llama-3-70b --capacity 16GiB --capacity 64GiB
      kvsim curve trace.jsonl --model gpt-oss-120b --capacity 80GB
      kvsim curve trace.jsonl --policy lfu --policy arc -o curve.svg
      kvsim curve trace.jsonl --given 16384 --format json
      kvsim curve trace.jsonl --policy anthropic --policy deepseek
    """
    from kvcache_sim.policies.resolve import resolve_policy
    from kvcache_sim.replay.group_settings import group_settings
    from kvcache_sim.report.curve.build import curve_ask
    from kvcache_sim.report.curve.write import check_outputs, draws, rendered, write_outputs
    from kvcache_sim.workload.readers.stream import NeedsWhole

    reading = keys.read_settings(digest=bool(printed.output) or printed.format == "json")
    if sampling.seed is not None and not sampling.sample and not parse_memory(sampling.memory):
        raise UsageError("a seed has no effect without --sample", where="--seed", got=str(sampling.seed))
    check_outputs(printed.output or [], printed.force)
    if any(resolve_policy(name)[0] == "hosted" for name in shown.policy or []):
        typer.echo(_lifetimes_text(trace, reading, shown, sampling, printed))
        return
    groups = group_settings("vllm", shown.model, shown.block_size, None, "")
    if groups is not None:
        if sampling.sample or printed.output:
            _refuse_groups(shown.model)
        typer.echo(_groups_text(trace, reading, shown, groups, printed.format))
        return
    current = sampling.first_pass(trace, shown, keys.trace_block_size)
    while True:
        try:
            requests = current.opened(trace, reading, sampling.seed or 0)
            drawn = draws(printed.output or [])
            options = {**asdict(shown), "sample": current.rate, "seed": sampling.seed or 0, "line": drawn}
            document = _document(trace, requests, curve_ask(requests, **options), current)
            break
        except OverMemoryError as over:
            current = current.after(over)
        except NeedsWhole:
            if trace == "-":
                raise
            current = replace(current, whole=True, limit_bytes=0)
    current.remark(sampling.memory)
    write_outputs(printed.output or [], document, printed.force)
    typer.echo(rendered(document, printed.format))


def _lifetimes_text(
    trace: str, reading: ReadSettings, shown: Shown, sampling: Sampling, printed: Printed
) -> str:
    """Return the curve of providers' caches, which is one over lifetimes; UsageError for other options."""
    from kvcache_sim.base.units import format_percent
    from kvcache_sim.policies.resolve import resolve_policy
    from kvcache_sim.replay.hosted import LIFETIMES, hit_rates_by_lifetime
    from kvcache_sim.replay.request import ReplayRequest
    from kvcache_sim.report.picture import Table
    from kvcache_sim.report.plain_table import plain_table
    from kvcache_sim.workload.readers.read import read_trace

    names = shown.policy or []
    others = [name for name in names if resolve_policy(name)[0] != "hosted"]
    if others or replace(shown, policy=None) != Shown() or sampling != Sampling() or printed.output:
        what = "a provider's cache has a curve over lifetimes: --policy and --format json alone"
        raise UsageError(what, where="--policy", got=", ".join(others or names))
    read = read_trace(trace, settings=replace(reading, keep_unknown=True))
    request = ReplayRequest(read, read.block_size, 0)
    rates = {name: hit_rates_by_lifetime(request, name) for name in names}
    if printed.format != "table":
        return json.dumps(rates, indent=2)
    rows = tuple((ttl, *(format_percent(rates[name][ttl]) for name in names)) for ttl in LIFETIMES)
    return plain_table(Table(("lifetime", *names), rows))


def _refuse_groups(model: str) -> NoReturn:
    what = "a model of windows or states has --capacity, --block-size and --format only"
    raise UsageError(what, where="--model", got=model)


def _groups_text(trace: str, reading: ReadSettings, shown: Shown, groups: GroupSettings, format: str) -> str:
    """Return the curve of a model whose groups share a pool; raises UsageError for options without effect."""
    from kvcache_sim.replay.request import ReplayRequest
    from kvcache_sim.report.curve.groups import GroupsAsk, groups_document, groups_rendered
    from kvcache_sim.workload.readers.read import read_trace

    others = (shown.policy, shown.given, shown.by_session, shown.every_capacity, shown.order != "tail")
    if any((*others, shown.last_partial != "drop", shown.outputs == "all")):
        _refuse_groups(shown.model)
    read = read_trace(trace, settings=reading)
    asked = ReplayRequest(read, shown.block_size or read.block_size, 1, outputs="computed")
    return groups_rendered(groups_document(GroupsAsk(asked, groups, tuple(shown.capacity or []))), format)


def _document(trace: str, requests: Trace | RowStream, ask: CurveAsk, current: Pass) -> Document:
    """Compute a curve; raises OverMemoryError for one of more ids or memory than the pass may take."""
    from kvcache_sim.report.curve.build import curve_document

    watch = Reading(trace, current.limit_bytes, current.most_ids, current.rate or 1.0)
    if ask.rows is not None:
        ask.rows.watch(watch)
    try:
        document = curve_document(ask)
    finally:
        watch.done()
    watch.check_ids(document["sample"]["ids"] if current.rate else document["distinct_blocks"])
    for warning in requests.warnings:
        warn(warning)
    return document
