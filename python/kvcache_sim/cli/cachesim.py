"""``kvsim cachesim``: policies at capacities, decision by decision, without time."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.notices import warn
from kvcache_sim.cli.replay_options import OUTPUTS, LastPartial, Order, Outputs, TraceFile, TraceKeys
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.cache.groups import GroupSettings
    from kvcache_sim.replay.request import ReplayRequest, ReplayResult
    from kvcache_sim.workload.readers import ReadSettings
    from kvcache_sim.workload.readers.stream import RowStream
    from kvcache_sim.workload.trace import Trace

app = verb_app()


BlockSize = Annotated[
    int,
    Option(
        "--block-size", "--page-size", help="tokens a block: a divisor or multiple of the trace's (0: it)"
    ),
]
KvBytes = Annotated[int, Option(help="the same as a number of bytes", min=0, metavar="BYTES")]


class Pair(Value):
    """A policy and a capacity, as written."""

    policy: str
    capacity: str


class Caches(Value):
    """The trace and its caches: each policy at each capacity."""

    trace: TraceFile
    capacity: Annotated[
        list[str] | None,
        "blocks (sglang: pages) as 16384, '2097152 tokens', or 16GiB with --model; repeatable",
    ] = None
    policy: Annotated[
        list[str] | None,
        Option(
            help="a name of kvsim policies list, or file.py:Name; repeatable: each at each capacity",
            show_default="lru",
        ),
    ] = None

    @property
    def policies(self) -> list[str]:
        """The policies, one without any."""
        return self.policy or ["lru"]

    @property
    def pairs(self) -> list[Pair]:
        """Each policy at each capacity."""
        return [Pair(policy, size) for policy in self.policies for size in self.capacity or [""]]

    def opened(self, reading: ReadSettings, whole: bool) -> Trace | RowStream:
        """Return the trace, row by row if it is long and every policy replays rows, unless ``whole``."""
        from kvcache_sim.policies.resolve import resolve_policy
        from kvcache_sim.replay.streamed import can_stream, memory_note, needs_future
        from kvcache_sim.workload.readers import read_trace
        from kvcache_sim.workload.readers.read import open_rows
        from kvcache_sim.workload.readers.stream import RowStream

        if any(resolve_policy(name)[0] == "hosted" for name in self.policies):
            return read_trace(self.trace, settings=replace(reading, keep_unknown=True))
        clairvoyant = [name for name in self.policies if needs_future(name)]
        streams = all(name in clairvoyant or can_stream(name) for name in self.policies)
        if whole or not streams or (self.trace == "-" and clairvoyant):
            return read_trace(self.trace, settings=reading)
        read = open_rows(self.trace, reading)
        if not (clairvoyant and isinstance(read, RowStream)):
            return read
        is_plain = Path(self.trace).suffix not in (".gz", ".zst")
        warn(memory_note(clairvoyant[0], Path(self.trace).stat().st_size if is_plain else 0))
        return read_trace(self.trace, settings=reading)


class Requests(Value):
    """The blocks that requests fill, and the order in which they are released."""

    window: Annotated[int, Option(help="requests that overlap (0: one after another)", min=0)] = 0
    outputs: Annotated[
        Outputs | None,
        Option(
            help=OUTPUTS, show_default="prompt; computed with sglang-unified or a model of windows or states"
        ),
    ] = None
    order: Order = "tail"
    last_partial: LastPartial = "drop"
    flat: Annotated[bool, "a plain cache of blocks, no prefixes"] = False
    reuse_outputs: Annotated[bool, "outputs have the ids of the session's next turn"] = False
    store_threshold: Annotated[
        int, Option(help="vLLM's CPU offloading: store a key at its n-th offer", min=0)
    ] = 0


class Groups(Value):
    """The model, whose groups of layers share vLLM's pool."""

    model: Annotated[
        str, "a model by name or file: turns sizes into blocks; with vllm its groups share a pool"
    ] = ""
    max_num_batched_tokens: Annotated[
        int | None,
        Option(
            help="vllm (groups, --cpu-chunks), lmcache-server: tokens of a step", min=1, show_default="8192"
        ),
    ] = None
    retention_interval: Annotated[
        str,
        Option(
            help="vllm, models of groups: tokens a checkpoint; 0: where prompts end or part, null: all",
            show_default="0",
        ),
    ] = ""


class Tiers(Value):
    """The tiers below, by policy."""

    host_capacity: Annotated[str, "sglang-unified: HiCache's host capacity, as --capacity"] = ""
    write_policy: Annotated[
        Literal["write_through", "write_through_selective", "write_back"] | None,
        Option(
            help="sglang-unified: when HiCache writes to the host",
            show_default="write_through with --host-capacity",
        ),
    ] = None
    storage: Annotated[str, "sglang-unified: HiCache's storage: unbounded, or as --capacity"] = ""
    prefetch_threshold: Annotated[
        int | None, Option(help="sglang-unified: fewest tokens from storage", min=1, show_default="256")
    ] = None
    chunk_tokens: Annotated[
        int, Option(help="lmcache, -server, vllm: tokens a chunk of the CPU", min=0, metavar="TOKENS")
    ] = 0
    cpu_chunks: Annotated[
        int, Option(help="lmcache, -server: chunks of the CPU; vllm: those of its CPU offloading", min=0)
    ] = 0
    cpu_policy: Annotated[
        Literal["lru", "arc"] | None,
        Option(help="vllm: policy of its CPU offloading", show_default="lru with --cpu-chunks"),
    ] = None
    disk_chunks: Annotated[int, Option(help="lmcache, -server: chunks of the disk tier", min=0)] = 0
    secondary: Annotated[
        bool, Option("--secondary-tier", help="vllm: a tier below the CPU's, which keeps all it gets")
    ] = False


class Printed(Value):
    """The output."""

    format: Annotated[Literal["table", "json"], "what to print"] = "table"
    requests: Annotated[Path | None, "also write a row a request: hits, misses by cause (.csv)"] = None
    force: Annotated[bool, "replace an existing file"] = False
    whole: Annotated[bool, "read a long trace whole: misses by cause, upper bounds"] = False

    def check(self, replays: int) -> None:
        """Raise UsageError for a table of several replays, and for a file that is not to be replaced."""
        from kvcache_sim.base.output import refuse_existing

        if self.force and self.requests is None:
            raise UsageError("has no effect without --requests", where="--force")
        if self.requests is None:
            return
        refuse_existing(self.requests, self.force)
        if replays > 1:
            what = f"{replays} pairs of a policy and a capacity"
            raise UsageError("a table of requests is that of one replay", where="--requests", got=what)


@app.command()
def cachesim(
    *,
    caches: Caches,
    keys: TraceKeys,
    block_size: BlockSize = 0,
    requests: Requests,
    groups: Groups,
    tiers: Tiers,
    kv_bytes_per_token: KvBytes = 0,
    backend: Annotated[str, Option(hidden=True)] = "",
    printed: Printed,
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
      kvsim cachesim trace.jsonl --policy anthropic --policy anthropic:1h --policy openai
      kvsim cachesim trace.jsonl --policy lmcache:lru --chunk-tokens 256 --cpu-chunks 8192 --disk-chunks 65536
    """
    from kvcache_sim.base.output import write_new
    from kvcache_sim.replay.group_settings import group_settings
    from kvcache_sim.report.cachesim import cachesim_text, policies_text, requests_csv
    from kvcache_sim.report.curve.sizes import kv_bytes_per_token as bytes_of_model
    from kvcache_sim.workload.readers import read_trace
    from kvcache_sim.workload.readers.stream import NeedsWhole

    if backend:
        hint = "leave it out; kvsim simulate --engine spec runs the specification"
        raise UsageError("removed: the core replays every policy", where="--backend", got=backend, hint=hint)
    if groups.model and kv_bytes_per_token:
        raise UsageError("a model says its own", where="--kv-bytes-per-token", got=str(kv_bytes_per_token))
    printed.check(len(caches.pairs))
    options = (groups.model, block_size, groups.max_num_batched_tokens, groups.retention_interval)
    groups_of = {name: group_settings(name, *options, tiers.cpu_chunks) for name in caches.policies}
    token_bytes = bytes_of_model(groups.model) or kv_bytes_per_token
    step_tokens = groups.max_num_batched_tokens
    replays = Replays(caches, requests, tiers, block_size, groups_of, token_bytes, step_tokens)
    reading = keys.read_settings(digest=False)
    whole = printed.whole or printed.requests is not None or requests.reuse_outputs
    try:
        results = replays.results(caches.opened(reading, whole))
    except NeedsWhole:
        if caches.trace == "-":
            raise
        results = replays.results(read_trace(caches.trace, settings=reading))
    columns = [result.pop("requests", None) for result in results]
    if printed.requests is not None:
        if columns[0] is None:
            got = caches.policies[0]
            raise UsageError("this policy keeps no table of requests", where="--requests", got=got)
        write_new(printed.requests, requests_csv(columns[0]), printed.force)
    if printed.format == "json":
        typer.echo(json.dumps(results[0] if len(results) == 1 else results, indent=2))
    elif len(results) == 1:
        typer.echo(cachesim_text(caches.policies[0], results[0]))
    else:
        typer.echo(policies_text([pair.policy for pair in caches.pairs], results))


class Replays(Value):
    """The replays of a command line, and what they have in common; 0 bytes of a token are unknown."""

    caches: Caches
    requests: Requests
    tiers: Tiers
    block_size: int
    groups_of: dict[str, GroupSettings | None]
    token_bytes: int
    step_tokens: int | None

    def results(self, read: Trace | RowStream) -> list[ReplayResult]:
        """Replay every policy at every capacity; prints the warnings of the trace."""
        from kvcache_sim.cli.reading import Reading
        from kvcache_sim.replay.cachesim import simulate_cache
        from kvcache_sim.replay.streamed import PolicyReplay, replay_rows
        from kvcache_sim.report.cachesim import capacity_bytes
        from kvcache_sim.workload.readers.stream import RowStream
        from kvcache_sim.workload.sessions import unseen_changes

        replays = [PolicyReplay(self._request(read, pair), pair.policy) for pair in self.caches.pairs]
        if isinstance(read, RowStream):
            watch = Reading(self.caches.trace, 0)
            read.watch(watch)
            try:
                results = replay_rows(read, replays)
            finally:
                watch.done()
        else:
            results = [simulate_cache(request, policy) for request, policy in replays]
        for warning in read.warnings:
            warn(warning)
        if self.token_bytes:
            for result, (request, _) in zip(results, replays, strict=True):
                result["capacity_bytes"] = capacity_bytes(request, self.token_bytes)
        if (
            self.requests.reuse_outputs
            and not isinstance(read, RowStream)
            and (unseen := unseen_changes(read))
        ):
            warn(
                f"--reuse-outputs: {unseen:,} next turns continue a prompt that ends inside a block; "
                "ids do not show changes there, so their answers count as reused whole"
            )
        return results

    def _request(self, read: Trace | RowStream, pair: Pair) -> ReplayRequest:
        from kvcache_sim.report.cachesim import CapacityOptions, cache_request
        from kvcache_sim.workload.readers.stream import RowStream

        return cache_request(
            read.header if isinstance(read, RowStream) else read,
            pair.policy,
            CapacityOptions(pair.capacity, self.block_size, **asdict(self.tiers)),
            self.groups_of[pair.policy],
            self.token_bytes,
            **asdict(self.requests),
            step_tokens=self.step_tokens,
            explain=not isinstance(read, RowStream),
        )
