"""The command line: one file a verb, listed once here and imported only when used."""

from __future__ import annotations

#: verb → (module, one line of help). A verb's module defines ``app``: a ``typer.Typer`` with one command,
#: or with subcommands.
VERBS: dict[str, tuple[str, str]] = {}
