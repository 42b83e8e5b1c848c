"""``kvsim channels``: list, show, new."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from kvcache_sim.cli.catalogue import (
    AsJson,
    Force,
    Name,
    NewName,
    print_figures,
    print_next,
    print_rows,
    write_template,
)
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.verb import verb_app

app = verb_app("List presets of links, show one, or start a file of one's own.")

_SIZES_MIB = (1, 64, 1024)


@app.command("list")
def list_channels(as_json: AsJson = False) -> None:
    """List the packaged presets of links.

    \b
    Examples:
      kvsim channels list
    """
    from kvcache_sim.model.channels import channel_names, load_channel

    channels = [load_channel(name) for name in channel_names()]
    if as_json:
        typer.echo(json.dumps({"channels": [asdict(channel) for channel in channels]}, indent=2))
        return
    print_rows(
        {
            channel.name: f"{channel.bandwidth_bytes_per_s / 1e9:6.1f} GB/s  {channel.source}"
            for channel in channels
        }
    )
    typer.echo("\nYour own: channels.NAME.preset: my.toml; start one with kvsim channels new NAME")


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show a preset's figures, its source, and how long it takes to move some sizes.

    \b
    Examples:
      kvsim channels show pcie5-x16
    """
    from kvcache_sim.model.channels import load_channel

    channel = load_channel(name)
    print_figures(asdict(channel), as_json)
    for size in () if as_json else _SIZES_MIB:
        typer.echo(f"{size:>5} MiB in one piece: {channel.transfer_ns(size << 20) / 1e6:,.3f} ms")


@app.command()
def new(
    name: NewName,
    start: Annotated[str, Option("--from", help="a preset by name or file")] = "pcie5-x16",
    force: Force = False,
) -> None:
    """Write a file of a link to edit.

    \b
    Examples:
      kvsim channels new mine --from nvme
    """
    from kvcache_sim.model.templates import new_channel

    path = write_template(name, force, lambda: new_channel(start))
    print_next(f"channels.cpu-to-gpu.preset={path}")
