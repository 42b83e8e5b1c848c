"""``kvsim trace import``: a log of production to a trace."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import remark
from kvcache_sim.cli.trace import options


def command(
    logs: Annotated[
        list[str], Argument(metavar="LOG...", help="log files, or folders of them; - is standard input")
    ],
    kind: Annotated[str, Option("--from", metavar="KIND", help="kind of log; default: detected")] = "",
    tokenizer: Annotated[str | None, "for texts: path of the model's tokenizer.json"] = None,
    bytes_per_token: Annotated[
        int | None, "for texts without a tokenizer: bytes a token; default: by the log's counts, else 4"
    ] = None,
    block_size: Annotated[
        int | None, Option(min=1, max=1 << 16, help="tokens an id (the log's, or 16)")
    ] = None,
    salt_file: Annotated[
        Path | None, Option(metavar="FILE", help="salt of the ids; without, one that is forgotten")
    ] = None,
    answer_tokens: options.AnswerTokens = None,
    *,
    output: options.Output,
    on_bad_row: options.OnBadRow = "error",
) -> None:
    """Make a trace of logs: of requests, engines, caches, agents, load generators, KV events or metrics.

    No text reaches the trace: ids are salted hashes. What is left out is counted on stderr. Several logs
    become one trace on one clock: a session and its sub-agents, rotated logs.

    \b
    Examples:
      kvsim trace import requests.jsonl --tokenizer llama/tokenizer.json -o mine.jsonl
      kvsim trace import vllm.log -o mine.jsonl
      kvsim trace import scrapes.txt -o curve.jsonl
    """
    from kvcache_sim.base.errors import UsageError
    from kvcache_sim.workload.imports.kind import Reading
    from kvcache_sim.workload.imports.naming import Naming, Notes, salt_of
    from kvcache_sim.workload.imports.write import import_logs

    if on_bad_row not in ("error", "skip"):
        raise UsageError(
            "unknown on_bad_row", where="--on-bad-row", got=repr(on_bad_row), expected="error | skip"
        )
    notes = Notes()
    naming = Naming(block_size or 16, salt_of(salt_file), tokenizer, bytes_per_token)
    if logs.count("-") > 1:
        raise UsageError("standard input can be read once", where="-")
    reading = Reading(naming, notes, on_bad_row == "skip", answer_tokens, own_block=block_size is None)
    found = import_logs(logs, kind, reading)
    if found is None:
        as_trace = replace(
            options.Ids().settings(on_bad_row),
            tokenizer=tokenizer,
            bytes_per_token=bytes_per_token,
            answer_tokens=answer_tokens,
        )
        print(f"{logs[0]}: is a trace already, converted as by kvsim trace convert", file=sys.stderr)
        output.save(options.load(logs[0], as_trace))
        return
    for line in found.said:
        remark(line)
    if output.output == "-":
        sys.stdout.writelines(found.lines())
        return
    from kvcache_sim.workload.toolbox.write import write_lines

    write_lines(Path(output.output), found.lines(), output.force)
    options.print_written(len(found), output.output, naming.block_size, f" of {found.names}")
