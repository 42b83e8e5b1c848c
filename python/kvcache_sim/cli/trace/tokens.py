"""``kvsim trace tokens``: the token ids that a trace's hash ids stand for."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Argument, Option

if TYPE_CHECKING:
    from kvcache_sim.workload.readers import ReadSettings
    from kvcache_sim.workload.tokens import PromptConfig
    from kvcache_sim.workload.tokens.output import TokenSink
    from kvcache_sim.workload.tokens.parallel import TokenSource
    from kvcache_sim.workload.trace import Trace


class Drawn(Value):
    """Settings of the tokens of an id."""

    seed: Annotated[str, "root seed; none draws one and prints it"] = "42"
    workers: Annotated[int, Option(min=1, max=1024, help="worker processes")] = 1
    scope: Annotated[Literal["document", "aiperf"], "seed formula: seed 002's, or AIPerf's (per trace)"] = (
        "document"
    )
    corpus_size: Annotated[int | None, "corpus of the token ids 0 to N-1 [default: 1000000]"] = None
    corpus: Annotated[Path | None, "file of token ids: .npy, or integers as text"] = None
    separator: Annotated[int | None, Option(min=0, help="token id put first in every block")] = None
    content: Annotated[Literal["parity", "collision-free"], "windows alone, or led by the id itself"] = (
        "parity"
    )

    def config(self, requests: Trace) -> PromptConfig:
        """Return the settings of the prompts of a trace."""
        from kvcache_sim.workload.tokens import Corpus, PromptConfig

        listed = 1_000_000 if self.corpus_size is None else self.corpus_size
        return PromptConfig(
            corpus=listed if self.corpus is None else Corpus.read(self.corpus),
            block_size=requests.block_size,
            trace_id=requests.sha256[:16] if self.scope == "aiperf" else None,
            separator=self.separator,
            content=self.content,
        )


class Ids(Value):
    """The ids of the trace's rows, as AIPerf turns them into tokens: sessions' turns are not joined."""

    trace_block_size: Annotated[int | None, Option(min=1, help="tokens an id [default: the format's]")] = None
    trace_format: Annotated[str | None, "format of the trace [default: detected]"] = None

    def read_settings(self) -> ReadSettings:
        """Return the settings of the reader: ids as they are."""
        from kvcache_sim.workload.readers import ReadSettings

        return ReadSettings(
            block_size=self.trace_block_size, format=self.trace_format, missing_ids="leave", turns="whole"
        )


class Printed(Value):
    """The output."""

    offsets: Annotated[bool, "print <id>:<start> of each id, no tokens"] = False
    output: Annotated[
        str | None, Option("-o", "--output", help=".npy, .parquet or .jsonl file; - prints JSON lines")
    ] = None
    force: Annotated[bool, "overwrite the file"] = False
    as_json: Annotated[bool, Option("--json", help="print the summary as JSON on stdout")] = False
    quiet: Annotated[bool, Option("--quiet", "-q", help="no progress on stderr")] = False

    def sink(self, requests: Trace, opened: ExitStack) -> TokenSink | None:
        """Open what tokens are written to, None without an output."""
        from kvcache_sim.workload.tokens.output import JsonlSink, token_file

        if self.output == "-":
            return JsonlSink(sys.stdout.buffer, requests)
        if self.output is None:
            return None
        return opened.enter_context(token_file(Path(self.output), requests, self.force))


def _check(drawn: Drawn, printed: Printed) -> None:
    """Raise UsageError for options that exclude each other, or without effect."""
    if drawn.corpus is not None and drawn.corpus_size is not None:
        raise UsageError("two corpora", where="--corpus, --corpus-size", hint="give one")
    hint = "drop it, or --offsets"
    if printed.offsets and drawn.separator is not None:
        raise UsageError("a separator does not move the offsets", where="--separator", hint=hint)
    if printed.offsets and drawn.content != "parity":
        raise UsageError("the content does not move the offsets", where="--content", hint=hint)
    if printed.force and printed.output in (None, "-"):
        raise UsageError("nothing to overwrite", where="--force", hint="give --output FILE")
    if printed.as_json and (printed.offsets or printed.output == "-"):
        hint = "drop it, or give --output FILE"
        raise UsageError("standard output has the data already", where="--json", hint=hint)


def command(
    trace: Annotated[str, Argument(metavar="TRACE", help="trace file, - for standard input")],
    drawn: Drawn,
    ids: Ids,
    printed: Printed,
) -> None:
    """Write the token ids that a trace's hash ids stand for, the same for any number of workers.

    A summary with the SHA-256 of the tokens (uint32, little-endian) is printed on stderr. Under content
    parity it says how many blocks have the very content of another id's.

    \b
    Examples:
      kvsim trace tokens trace.jsonl --seed 42 --workers 4 -o tokens.npy
      kvsim trace tokens trace.jsonl --seed 42 --scope aiperf --offsets | sha256sum
      kvsim trace tokens trace.jsonl --seed 42 --corpus corpus.npy -o - | head -1
    """
    from kvcache_sim.base.rng import derive_seed
    from kvcache_sim.workload.readers import read_trace
    from kvcache_sim.workload.tokens import block_starts, token_source
    from kvcache_sim.workload.tokens.collisions import shared_blocks
    from kvcache_sim.workload.tokens.output import offset_lines
    from kvcache_sim.workload.tokens.row_key import sizes_by_id

    _check(drawn, printed)
    requests = read_trace(trace, settings=ids.read_settings())
    root_seed = _root_seed(drawn.seed)
    config = drawn.config(requests)
    base_seed = derive_seed(root_seed, "dataset.prompt.corpus")
    tokens = int(requests.input_tokens.sum())
    with ExitStack() as opened:
        source = opened.enter_context(token_source(requests, config, base_seed, drawn.workers))
        if printed.offsets:
            file = opened.enter_context(_binary(printed.output, printed.force))
            file.writelines(offset_lines(requests, source.starts()))
            return
        sink = printed.sink(requests, opened)
        advance = opened.enter_context(counting(tokens, "tokens", printed.quiet))
        digest = _drain(source, sink, advance)
    starts = block_starts(requests, config, base_seed)
    summary = {
        "seed": root_seed,
        "scope": config.scope,
        "rows": len(requests),
        "tokens": tokens,
        "distinct_ids": requests.distinct_ids,
        "blocks_sharing_content": shared_blocks(starts, sizes_by_id(requests), config),
        "tokens_sha256": digest,
        "workers": [{"pid": count.pid, "rows": count.rows, "ids": count.ids} for count in source.counts],
    }
    if printed.as_json:
        typer.echo(json.dumps(summary))
    else:
        for name, value in summary.items():
            typer.echo(f"{name}: {value}", err=True)


def _root_seed(text: str) -> int:
    """Parse a seed; ``none`` draws a seed and prints it, so that the run can be repeated."""
    if text.isdecimal() and text.isascii():
        return int(text)
    if text != "none":
        raise UsageError(
            "not a seed", where="--seed", got=repr(text), expected="an integer from 0 on, or none"
        )
    from kvcache_sim.base.rng import RandomGenerator

    drawn = RandomGenerator().getrandbits(64)
    typer.echo(f"this run is --seed {drawn}", err=True)
    return drawn


def _drain(source: TokenSource, sink: TokenSink | None, advance: Callable[[int], None]) -> str:
    """Write every batch, and return the SHA-256 of all tokens as little-endian uint32."""
    digest = hashlib.sha256()
    for batch in source.batches():
        digest.update(batch.tokens.astype("<u4", copy=False).data)
        if sink is not None:
            sink.write(batch)
        advance(len(batch.tokens))
    return digest.hexdigest()


@contextmanager
def _binary(output: str | None, force: bool) -> Iterator[IO[bytes]]:
    from kvcache_sim.base.output import new_file

    if output in (None, "-"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    else:
        with new_file(Path(output), force) as file:
            yield file


_PLAIN_S = 10.0


@contextmanager
def counting(total: int, unit: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of further items done; it draws on stderr unless ``quiet``."""
    if quiet:
        yield lambda count: None
    elif not sys.stderr.isatty() or os.environ.get("CI") or os.environ.get("NO_COLOR"):
        yield _plain(total, unit)
    else:
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True, refresh_per_second=5) as bar:
            task = bar.add_task(unit, total=total)
            yield lambda count: bar.advance(task, count)


def _plain(total: int, unit: str) -> Callable[[int], None]:
    done, start = 0, time.monotonic()
    due = start + _PLAIN_S

    def advance(count: int) -> None:
        nonlocal done, due
        done += count
        now = time.monotonic()
        if now >= due:
            due = now + _PLAIN_S
            left = (now - start) * (total - done) / max(1, done)
            print(f"{done:,} of {total:,} {unit}, ETA {left:.0f} s", file=sys.stderr)

    return advance
