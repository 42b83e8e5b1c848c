"""``kvsim record``: a reverse proxy that writes a trace of what passes through it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from kvcache_sim.base.errors import EXIT_OK, KvsimError
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.run_options import refuse_empty
from kvcache_sim.cli.verb import verb_app

app = verb_app()


@app.command()
def record(
    upstream: Annotated[str, Option(metavar="URL", help="the server behind, http://HOST:PORT")],
    output: Annotated[Path, Option("-o", "--output", metavar="FILE", help="the trace")] = Path(
        "recorded.jsonl"
    ),
    host: Annotated[str, "address to listen on"] = "127.0.0.1",
    port: Annotated[int, Option(min=0, max=65535, help="0: one that is free, which is printed")] = 8001,
    tokenizer: Annotated[
        Path | None, Option(metavar="DIR", help="the model's tokenizer.json or its directory")
    ] = None,
    block_size: Annotated[int, Option(min=1, max=1 << 16, help="tokens of a block id")] = 16,
    salt_file: Annotated[
        Path | None, Option(metavar="FILE", help="salt of the ids; without, one that is forgotten")
    ] = None,
    keep_text: Annotated[
        Path | None, Option(metavar="FILE", help="also write what was said, for kvsim trace import")
    ] = None,
    force: Annotated[bool, "replace the trace"] = False,
    quiet: Annotated[bool, Option("--quiet", "-q", help="say nothing on stderr")] = False,
) -> int:
    """Pass requests on to a server untouched and write a trace: times, lengths, salted block ids, no text.

    \b
    Examples:
      kvsim record --upstream http://127.0.0.1:8000 --port 8001 --tokenizer ./llama -o recorded.jsonl
      kvsim simulate recorded.jsonl --set trace.block_size=16
    """
    from kvcache_sim.cli.serve import needed

    needed("kvsim record", "httptools", "uvloop", "msgspec")
    from kvcache_sim.extras.live.record.proxy import Upstream
    from kvcache_sim.extras.live.record.recording import Recording
    from kvcache_sim.extras.live.record.recording import record as recorded
    from kvcache_sim.extras.live.record.texts import Texts
    from kvcache_sim.extras.live.record.trace_file import TraceFile
    from kvcache_sim.extras.live.tokenizer import tokenizer_of
    from kvcache_sim.report.plain_table import next_line
    from kvcache_sim.workload.imports.naming import salt_of
    from kvcache_sim.workload.prompts.body import seen_lines

    refuse_empty(host=host)
    texts = None if keep_text is None else Texts(keep_text, force)
    recording = Recording(host, port, Upstream(upstream), texts)
    chosen = tokenizer_of(tokenizer)
    trace = TraceFile(output, chosen, block_size, salt_of(salt_file), force)

    def say(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    say(f"tokenizer  {chosen.name}")
    try:
        rows = recorded(recording, trace, say)
    except KvsimError:
        trace.abandon()
        raise
    if texts is not None:
        texts.close()
    for line in seen_lines(trace.seen):
        print(f"prompts    {line}")
    print(f"recorded   {rows:,} requests in {output}, {trace.skipped:,} left out")
    print(next_line("simulate", output, "--set", f"trace.block_size={block_size}"))
    return EXIT_OK
