"""``kvsim trace``: every subcommand, by the function that ``SUBCOMMANDS`` names.

- ``options``    the options that every subcommand on trace files shares, and the two ends
- ``transform``  trace to trace: the subcommands of one transform
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from kvcache_sim.base.rows import Rows
from kvcache_sim.cli.verb import verb_app

#: Subcommand → its function.
SUBCOMMANDS: Rows[Callable[..., Any]] = Rows(
    "kvcache_sim.cli.trace",
    {
        "generate": "generate:command",
        "tokens": "tokens:command",
        "check": "check:command",
        "stats": "stats:command",
        "convert": "convert:command",
        "import": "import_:command",
        "head": "transform:head",
        "slice": "transform:slice_",
        "merge": "merge:command",
        "scale": "transform:scale",
        "rechunk": "transform:rechunk",
        "sample": "transform:sample",
        "repeat": "transform:repeat",
        "anonymise": "transform:anonymise",
        "edit": "edit:command",
    },
)


class Subcommands(TyperGroup):
    """The subcommands by name, each imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names in the table's order."""
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the subcommand of a name, or None."""
        del ctx
        if cmd_name not in SUBCOMMANDS:
            return None
        app = verb_app()
        app.command(cmd_name)(SUBCOMMANDS[cmd_name])
        return get_command(app)


app = verb_app("Work with traces: files of requests, one a line.")


@app.callback(cls=Subcommands)
def _trace() -> None:
    """Work with traces: files of requests, one a line."""
