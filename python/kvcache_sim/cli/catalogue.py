"""Functions of ``models``, ``gpus``, ``step-times`` and ``channels``: print a list, write a new file."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kvcache_sim.cli.declared import Argument, Option

AsJson = Annotated[bool, Option("--json", help="print JSON")]
Name = Annotated[str, Argument(help="as list prints it, or a file", metavar="NAME")]
NewName = Annotated[str, Argument(help="the file is NAME.toml", metavar="NAME")]
Force = Annotated[bool, "replace an existing file"]


def print_rows(rows: Mapping[str, str]) -> None:
    """Print names and their descriptions in two columns."""
    width = max(map(len, rows))
    for name, text in rows.items():
        typer.echo(f"{name:<{width}}  {text}")


def print_figures(figures: dict[str, Any], as_json: bool) -> None:
    """Print the figures of one entry, numbers in groups of three digits, or all as JSON."""
    if as_json:
        typer.echo(json.dumps(figures, indent=2))
        return
    print_rows({key: _cell(value) for key, value in figures.items()})


def _cell(value: Any) -> str:
    """Return a figure as text; of values of several parts each part with its name."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_cell(part)}" for key, part in value.items())
    if isinstance(value, tuple):
        return "; ".join(_cell(part) for part in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_next(*settings: str) -> None:
    """Print a run with other settings as the next command."""
    from kvcache_sim.report.plain_table import next_line

    words = [word for setting in settings for word in ("--set", setting)]
    typer.echo(next_line("simulate", "-c", "preset:quickstart", *words))


def write_template(name: str, force: bool, text: Callable[[], str]) -> Path:
    """Write a file to edit, ``NAME.toml`` here; an existing one is refused without ``force``."""
    from kvcache_sim.base.output import refuse_existing, write_new

    path = Path(name if name.endswith(".toml") else f"{name}.toml")
    refuse_existing(path, force)
    write_new(path, text().encode(), force)
    typer.echo(f"wrote {path}")
    return path
