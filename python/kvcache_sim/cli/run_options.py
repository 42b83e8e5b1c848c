"""The options shared by verbs that write a run directory: which scenario, which settings, where it goes."""

from __future__ import annotations

from typing import Annotated

import typer

Config = Annotated[str, typer.Option("-c", "--config", metavar="FILE", help="scenario, - for stdin")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="one setting; may be repeated")
]
Output = Annotated[
    str, typer.Option("-o", "--output", metavar="DIR", help="run directory (runs/<n>-<name>-<hash>)")
]
Force = Annotated[bool, typer.Option("--force", help="replace the run directory -o names")]
