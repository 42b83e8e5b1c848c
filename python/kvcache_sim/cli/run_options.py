"""Options shared by verbs that write a run directory: scenario, settings, output."""

from __future__ import annotations

from typing import Annotated

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.declared import Option

Config = Annotated[str, Option("-c", "--config", metavar="FILE", help="scenario, - for stdin")]
Settings = Annotated[
    list[str] | None, Option("--set", metavar="KEY=VALUE", help="one setting; may be repeated")
]
Output = Annotated[
    str, Option("-o", "--output", metavar="DIR", help="run directory (runs/<n>-<name>-<hash>)")
]
Force = Annotated[bool, Option("--force", help="replace the run directory -o names")]
#: Of verbs that run a finished run again.
RUN_PLUGINS = "import the plug-ins that the run names: code"
#: Of all verbs that replay a trace.
SYNTHESISE_PREFIXES = Option(
    "--synthesise-prefixes",
    help="without block ids: assume that requests are turns of sessions (trace.synthesise_prefixes)",
)


def refuse_idle(why: str, **options: object) -> None:
    """Raise UsageError for the first option that was given but has no effect.

    Options are named as parameters are, ``salt_file`` for ``--salt-file``; ``why`` ends the line.
    """
    for name, value in options.items():
        if value:
            raise UsageError(f"has no effect {why}", where=f"--{name.replace('_', '-')}")
