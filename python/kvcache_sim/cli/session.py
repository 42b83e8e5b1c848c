"""``kvsim session``: agents' sessions on a provider's prompt cache."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from kvcache_sim.base.errors import EXIT_OK, EXIT_THRESHOLD, UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.notices import remark, warn
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcache_sim.extras.session.what_if import Edit

app = verb_app()


class Logs(Value):
    """The logs, and the prices of their models."""

    logs: Annotated[
        list[str], Argument(metavar="LOG...", help="logs of agents, folders of them, or patterns")
    ]
    price: Annotated[
        list[Path] | None,
        Option(
            metavar="FILE", help="other prices: a bill of their own, and models that have none; repeatable"
        ),
    ] = None
    on_bad_row: Annotated[Literal["error", "skip"], "bad lines of a log: refuse the first, or count them"] = (
        "error"
    )

    config: Annotated[
        Path | None, Option("-c", "--config", metavar="FILE", help="also simulate the sessions on a scenario")
    ] = None


class WhatIfs(Value):
    """Edits of the sessions, each a bill of its own."""

    ttl: Annotated[list[str] | None, Option(metavar="TTL", help="lifetime of all writes, such as 1h")] = None
    sort_tools: Annotated[bool, "tools in one order"] = False
    freeze: Annotated[list[str] | None, Option(metavar="system", help="the session's first system text")] = (
        None
    )
    compact_at: Annotated[
        list[str] | None, Option(metavar="LENGTH", help="summarise before a longer prompt: 120k, or 60%")
    ] = None
    drop_results_older: Annotated[
        list[str] | None, Option(metavar="K", help="replace all but a prompt's last K results of tools")
    ] = None
    mark: Annotated[
        list[str] | None, Option(metavar="second-last", help="one more breakpoint, where the last call ended")
    ] = None
    provider: Annotated[
        list[str] | None, Option(metavar="NAME:MODEL", help="another provider, such as openai:gpt-5.2")
    ] = None
    best: Annotated[bool, "try the sensible edits and show the cheapest three"] = False

    def edits(self) -> list[Edit]:
        """Return the edits in the order of the options."""
        from kvcache_sim.extras.session.what_if import Edit

        named = ("ttl", "freeze", "compact_at", "drop_results_older", "mark", "provider")
        found = [Edit("sort-tools")] if self.sort_tools else []
        return found + [
            Edit(name.replace("_", "-"), value) for name in named for value in getattr(self, name) or ()
        ]


class Against(Value):
    """The gate of pull requests."""

    against: Annotated[
        str, Option(metavar="LOG", help="main's log, or folder of request bodies: compare, and exit 4")
    ] = ""
    fail_if: Annotated[
        str, Option(metavar="RISE", help="the rise of a session's bill that fails; +2% if not given")
    ] = ""
    volume: Annotated[str, Option(metavar="N", help="such as '2000 sessions/day': dollars a month")] = ""
    github: Annotated[bool, "print GitHub's annotations"] = False


class Printed(Value):
    """The output."""

    format: Annotated[Literal["table", "json"], "what to print"] = "table"
    output: Annotated[Path | None, Option("-o", "--output", help="also write a page: report.html")] = None
    force: Annotated[bool, "replace the page"] = False
    texts: Annotated[bool, "texts of what differs first, in the page and the JSON"] = False


@app.command()
def session(logs: Logs, what_ifs: WhatIfs, gate: Against, printed: Printed) -> int:
    """Show what agents' sessions read, write and cost at a provider, and why calls read less than before.

    Logs of Claude Code, Codex and TraceLab; calls share a cache by model, by time. With --against, sessions
    of a change are compared with those of the main branch: exit 4 if a session costs more. No text of a log
    is printed or written without --texts.

    \b
    Examples:
      kvsim session session.jsonl -o report.html
      kvsim session session.jsonl --ttl 1h --compact-at 60% --best
      kvsim session main --against main --fail-if +2% --volume '2000 sessions/day'
    """
    if gate.against:
        if what_ifs.edits() or what_ifs.best:
            raise UsageError("without effect", where="--against", hint="leave the edits out")
        return _gate(logs, gate, printed)
    from kvcache_sim.base.output import refuse_existing, write_new
    from kvcache_sim.extras.session.as_json import as_json
    from kvcache_sim.extras.session.asked import Asked
    from kvcache_sim.extras.session.bill import most_at_once
    from kvcache_sim.extras.session.screen import screen

    if gate.fail_if or gate.volume or gate.github:
        raise UsageError("without effect", where="--fail-if, --volume, --github", hint="they need --against")
    if printed.texts and printed.output is None and printed.format != "json":
        raise UsageError("without effect", where="--texts", hint="-o report.html or --format json shows them")
    if printed.output is not None:
        if printed.output.suffix != ".html":
            raise UsageError("not a page", where="-o", got=str(printed.output), expected="a file .html")
        refuse_existing(printed.output, printed.force)
    asked = Asked(logs.logs, logs.price or [], logs.on_bad_row == "skip")
    bill, edited = asked.bill, asked.what_if(what_ifs.edits(), what_ifs.best)
    for line in bill.said:
        remark(line)
    texts = {}
    if printed.texts:
        from kvcache_sim.extras.session.texts import differing_texts

        texts = differing_texts(logs.logs, bill)
    engine, said = {}, ""
    if logs.config is not None:
        from kvcache_sim.extras.session.engine import engine_json, engine_text, on_engine

        found = on_engine(logs.logs, logs.config, what_ifs.edits(), _held(logs.config))
        for line in dict.fromkeys(said for each in found for said in each.warnings):
            warn(line)
        text = engine_text(found, logs.logs, logs.config, most_at_once(bill))
        engine, said = {"engine": engine_json(found)}, f"\n{text}"
    if printed.format == "json":
        print(json.dumps(as_json(bill, edited, texts) | engine, indent=1, allow_nan=False))
    else:
        print("\n".join([screen(bill, edited), *([said] if said else [])]))
    if printed.output is not None:
        from kvcache_sim.extras.session.page import page

        write_new(printed.output, page(bill, edited, texts).encode(), printed.force)
        print(f"wrote {printed.output}", file=sys.stderr)
    return EXIT_OK


def _held(config: Path) -> Callable[[Path], int | None]:
    """Return the search for the most sessions at a time of a trace on a scenario."""
    from kvcache_sim.api.sizing import capacity
    from kvcache_sim.extras.session.engine import TRACE_SETTINGS

    return lambda trace: capacity(trace, config, sessions=True, **TRACE_SETTINGS).sessions or 0


def _gate(logs: Logs, gate: Against, printed: Printed) -> int:
    from kvcache_sim.extras.session.compared import compared
    from kvcache_sim.extras.session.gate import parse_fail_if, parse_volume, verdict_lines

    limit = parse_fail_if(gate.fail_if or "+2%")
    monthly = parse_volume(gate.volume) if gate.volume else None
    if printed.output is not None or logs.config is not None or printed.format != "table" or printed.texts:
        raise UsageError(
            "without effect", where="-o, -c, --format, --texts", hint="they go without --against"
        )
    if len(logs.logs) != 1:
        raise UsageError(
            "one log, or one folder, against another", where="--against", got=f"{len(logs.logs)}"
        )
    found = compared(logs.logs[0], gate.against, logs.price or [])
    lines = verdict_lines(found, limit, monthly)
    is_breach = found.rise > limit
    if gate.github:
        print(f"::{'error' if is_breach else 'notice'} title=prompt cache::{'. '.join(lines)}")
    else:
        print("\n".join(lines))
    return EXIT_THRESHOLD if is_breach else EXIT_OK
