"""``kvsim trace``: one file a subcommand, listed here."""

from __future__ import annotations

import importlib

from kvcache_sim.cli.verb import verb_app

#: subcommand → module; each defines ``command``.
SUBCOMMANDS: dict[str, str] = {
    "generate": "kvcache_sim.cli.trace.generate",
    "tokens": "kvcache_sim.cli.trace.tokens",
}

app = verb_app("Work with traces: files of requests, one a line.")
for _name, _module in SUBCOMMANDS.items():
    app.command(_name)(importlib.import_module(_module).command)
