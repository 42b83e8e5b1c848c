"""``kvsim trace``: one file a subcommand, listed here.

- ``counting``   what a person sees while a trace is worked on
- ``options``    the options that every subcommand on trace files shares, and the two ends
- ``transform``  trace to trace: the command around a transform
"""

from __future__ import annotations

import importlib
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from kvcache_sim.cli.verb import verb_app

#: subcommand → module; each defines ``command``.
SUBCOMMANDS: dict[str, str] = {
    "generate": "kvcache_sim.cli.trace.generate",
    "tokens": "kvcache_sim.cli.trace.tokens",
    "check": "kvcache_sim.cli.trace.check",
    "stats": "kvcache_sim.cli.trace.stats",
    "convert": "kvcache_sim.cli.trace.convert",
    "import": "kvcache_sim.cli.trace.import_",
    "head": "kvcache_sim.cli.trace.head",
    "slice": "kvcache_sim.cli.trace.slice",
    "merge": "kvcache_sim.cli.trace.merge",
    "scale": "kvcache_sim.cli.trace.scale",
    "rechunk": "kvcache_sim.cli.trace.rechunk",
    "sample": "kvcache_sim.cli.trace.sample",
    "repeat": "kvcache_sim.cli.trace.repeat",
    "anonymise": "kvcache_sim.cli.trace.anonymise",
}


class Subcommands(TyperGroup):
    """The subcommands by name, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the table's order."""
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return one subcommand, or None where there is none of that name."""
        del ctx
        if cmd_name not in SUBCOMMANDS:
            return None
        app = verb_app()
        app.command(cmd_name)(importlib.import_module(SUBCOMMANDS[cmd_name]).command)
        return get_command(app)


app = verb_app("Work with traces: files of requests, one a line.")


@app.callback(cls=Subcommands)
def _trace() -> None:
    """Work with traces: files of requests, one a line."""
