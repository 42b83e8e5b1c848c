"""The rows of ``setting_effects.toml``: for each key of a scenario what its values do, or why they are refused."""

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


class Change(NamedTuple):
    """One setting by ``--set`` alone and what it does to a figure of the summary or a counter."""

    assignment: str
    figure: str
    #: ``up``, ``down`` or ``differs``.
    direction: str
    #: Settings of both runs.
    given: tuple[str, ...] = ()
    #: Settings of the run it is compared with, where leaving the assignment out would be refused.
    against: tuple[str, ...] = ()


class Refusal(NamedTuple):
    """One setting that cannot have an effect in the scenario, and the words that say why."""

    assignment: str
    words: str
    given: tuple[str, ...] = ()


def settings_of(company: Iterable[str]) -> Iterator[str]:
    """Yield settings; a name without ``=`` stands for those of its group."""
    for one in company:
        yield from (one,) if "=" in one else settings_of(_TABLE["company"][one])


def _filled(row: list[str | list[str]]) -> Iterator[str | tuple[str, ...]]:
    return (cell if isinstance(cell, str) else tuple(settings_of(cell)) for cell in row)


CHANGES = [Change(*_filled(row)) for row in _TABLE["changes"]]  # type: ignore[arg-type]
REFUSALS = [Refusal(*_filled(row)) for row in _TABLE["refusals"]]  # type: ignore[arg-type]
#: Keys of the generators: a value that gives other requests, and the settings that it needs.
GENERATED: dict[str, list[str]] = _TABLE["generated"]
