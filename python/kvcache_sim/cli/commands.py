"""Every verb and subcommand as typer's parser sees it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from kvcache_sim.cli import VERBS
from kvcache_sim.cli.verb import typer_app


def commands() -> Iterator[tuple[str, Any]]:
    """Yield (name, command) of each verb and of each subcommand, such as ``trace check``."""
    from typer.main import get_command

    for verb, (module, _) in VERBS.items():
        command: Any = get_command(typer_app(importlib.import_module(module).app))
        yield verb, command
        for name in command.list_commands(None) if hasattr(command, "list_commands") else ():
            yield f"{verb} {name}", command.get_command(None, name)
