"""Options shared by verbs that write a run directory: scenario, settings, output."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.cli.declared import Option
from kvcache_sim.metrics.run_directory import RunDirectory, open_numbered_directory, open_run_directory


class ScenarioFile(Value):
    """The scenario to run, and settings over it."""

    config: Annotated[str, Option("-c", "--config", metavar="FILE", help="scenario, - for stdin")] = ""
    settings: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="one setting; may be repeated")
    ] = None

    @property
    def path(self) -> Path | None:
        """The scenario's file, if one is named."""
        return Path(self.config) if self.config else None


class NumberedRun(NamedTuple):
    """The parts of a numbered run directory's name."""

    scenario: str
    config_hash: str


class RunOutput(Value):
    """The run directory to write."""

    output: Annotated[
        str, Option("-o", "--output", metavar="DIR", help="run directory (runs/<n>-<name>-<hash>)")
    ] = ""
    force: Annotated[bool, "replace the run directory -o names"] = False

    def opened(self, numbered: Callable[[], NumberedRun]) -> AbstractContextManager[RunDirectory]:
        """Claim the directory of ``-o``, else the next one of a scenario's name and hash."""
        if self.output:
            return open_run_directory(Path(self.output), self.force)
        return open_numbered_directory(Path("runs"), *numbered())


#: Of verbs that run a finished run again.
RUN_PLUGINS = "import the plug-ins that the run names: code"
#: Of all verbs that take a trace.
Turns = Literal["delta", "whole"]
TURNS = "a session's later rows: their new turn alone, or whole prompts; default: their ids decide"
#: Of all verbs that replay a trace.
SYNTHESISE_PREFIXES = Option(
    "--synthesise-prefixes",
    help="without block ids: assume that requests are turns of sessions (trace.synthesise_prefixes)",
)


def refuse_empty(**options: str | None) -> None:
    """Raise UsageError for the first option that was given without a text."""
    for name, text in options.items():
        if text is not None and not text.strip():
            option = f"--{name.replace('_', '-')}"
            raise UsageError("is empty", where=option, hint="leave it out for its default")


def refuse_idle(why: str, **options: object) -> None:
    """Raise UsageError for the first option that was given but has no effect.

    Options are named as parameters are, ``salt_file`` for ``--salt-file``; ``why`` ends the line.
    """
    for name, value in options.items():
        if value:
            raise UsageError(f"has no effect {why}", where=f"--{name.replace('_', '-')}")
