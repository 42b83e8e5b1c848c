"""Tables of engines' flags: how each is written, and the setting it becomes, from ``flags/ENGINE.toml``.

The first lines of ``flags/vllm.toml`` say what the columns mean; ``benches/launch_flags.py`` reads the names.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from kvcache_sim._core import toml_values
from kvcache_sim.base.values import Value
from kvcache_sim.model.releases import Version, parse_version

_DATA = Path(__file__).parent / "flags"

Takes = Literal["value", "switch", "pair", "optional", "several"]


class Flag(Value):
    """A flag or a variable: its names, what it takes, and either a setting or why there is none.

    ``key`` is the setting that it becomes. Without one, ``no_effect`` says why it cannot change an answer,
    or ``not_simulated`` what a run has instead; of a flag with both the ``usual`` values have no effect.
    """

    name: str
    also: tuple[str, ...] = ()
    takes: Takes = "value"
    #: The releases that have it; None: from the first and to the last that were read.
    since: Version | None = None
    until: Version | None = None
    #: Numbers may have suffixes: 32k is 32,000, 32K is 32,768.
    human: bool = False
    key: str = ""
    #: Code that gives the setting, by name; "": the columns below.
    rule: str = ""
    #: The engine's words for the setting's; "" for those that leave it unset.
    words: Mapping[str, str] = {}
    #: Unit of a size: "GB", "B", "blocks" or "tokens".
    unit: str = ""
    per_rank: bool = False
    #: A number of all ranks of attention: each has its share.
    per_dp: bool = False
    #: Of two flags of one setting it counts, wherever it stands; else the last one.
    prevails: bool = False
    #: A setting of the engine's own scheduler only.
    own_scheduler: bool = False
    #: The setting's value with the switch on, and with its ``--no-`` form.
    on: str = ""
    off: str = ""
    no_effect: str = ""
    not_simulated: str = ""
    decides: bool = False
    usual: tuple[str, ...] = ()

    @property
    def alone(self) -> bool:
        """True if no value follows."""
        return self.takes in ("switch", "pair")

    def is_in(self, release: Version | None) -> bool:
        """Return True if a release has the flag; None has those of every release."""
        after = release is None or self.since is None or self.since <= release
        return after and (release is None or self.until is None or release <= self.until)


class Spelling(Value):
    """A flag by a written name, or its ``--no-`` form."""

    flag: Flag
    on: bool = True


class Engine(Value):
    """An engine's command line."""

    name: str
    source: str
    #: Commands that start a line; the first is printed.
    starts: tuple[tuple[str, ...], ...]
    #: Flags that name the model, the first is printed; "" is a positional argument.
    models: tuple[str, ...]
    #: ``--max_num_seqs`` is read as ``--max-num-seqs``.
    underscores: bool
    flags: Mapping[str, Flag]
    #: Environment variables by name or pattern; the first that fits counts.
    variables: Mapping[str, Flag]

    def spellings(self, release: Version | None = None) -> dict[str, Spelling]:
        """Return all names that a release has, or any release, and what they stand for."""
        found: dict[str, Spelling] = {}
        for flag in self.flags.values():
            if not flag.is_in(release):
                continue
            for name in (flag.name, *flag.also):
                found[name] = Spelling(flag)
                if flag.takes == "pair" and name.startswith("--"):
                    found.setdefault(f"--no-{name[2:]}", Spelling(flag, on=False))
        return found

    def variable(self, name: str) -> Flag:
        """Return an environment variable: the engine's, or else one of the machine."""
        known = {**self.variables, **variables("machine")}
        return replace(next(flag for one, flag in known.items() if fnmatchcase(name, one)), name=name)


class Connector(Value):
    """A KV connector: a tier below the GPU, or why it is none."""

    tier: str = ""
    because: str = ""
    hands_over: bool = False


@cache
def _table(name: str) -> dict[str, Any]:
    return toml_values((_DATA / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def launch_engine(name: str) -> Engine:
    """Return the command line of ``vllm`` or ``sglang``."""
    table = _table(name)
    return Engine(
        name,
        table["source"],
        tuple(map(tuple, table["starts"])),
        tuple(table["models"]),
        table["underscores"],
        _flags(table, "flags"),
        variables(name),
    )


@cache
def variables(name: str) -> Mapping[str, Flag]:
    """Return the variables of a table by name or pattern: an engine's, LMCache's keys, or the machine's."""
    return _flags(_table(name), "variables")


@cache
def connectors() -> Mapping[str, Connector]:
    """Return the KV connectors by name."""
    table = _table("connectors")
    rows = {name: dict(row) for name, row in table["connectors"].items()}
    for row in rows.values():
        row |= {
            "because": table["because"].get(row.get("because"), ""),
            "hands_over": row.get("because") == "handover",
        }
    return {name: Connector(**row) for name, row in rows.items()}


@cache
def connector_keys() -> Mapping[str, Flag]:
    """Return the keys of a connector's extra configuration."""
    return _flags(_table("connectors"), "keys")


def launch_engines() -> tuple[Engine, ...]:
    """Return the engines whose lines are read."""
    return launch_engine("vllm"), launch_engine("sglang")


def _flags(table: dict[str, Any], part: str) -> Mapping[str, Flag]:
    return {name: _flag(name, row, table["because"]) for name, row in table[part].items()}


def _flag(name: str, row: dict[str, Any], reasons: Mapping[str, str]) -> Flag:
    columns: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in row.items()
    }
    columns |= {key: parse_version(columns[key]) for key in ("since", "until") if key in columns}
    columns |= {key: reasons[columns[key]] for key in ("no_effect", "not_simulated") if key in columns}
    return Flag(name, **columns)
