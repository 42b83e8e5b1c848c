"""Releases of engines: each default and rule of capacity by release, from ``data/releases/ENGINE.toml``.

A setting has rows, each from a release on, some for certain GPUs, models or features only. The row that
counts is the newest one that a machine meets; of several from one release the last.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.catalog import entry_names, read_entry, unknown_name

_FOLDER = "releases"
#: A fourth number counts as a post-release (vLLM 0.10.1.1).
_VERSION = re.compile(r"v?(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?(?:\.?(rc|post)(\d{1,3})|\.(\d{1,3}))?")


class Version(NamedTuple):
    """A version by its numbers; ``after``: below 0 for a release candidate, above for a post-release."""

    major: int
    minor: int
    patch: int = 0
    after: int = 0

    def __str__(self) -> str:
        """Return the version as its engine writes it."""
        more = f"rc{self.after + 1000}" if self.after < 0 else f".post{self.after}" if self.after else ""
        return f"{self.major}.{self.minor}.{self.patch}{more}"


def parse_version(text: str, where: str = "") -> Version:
    """Return a version such as ``0.19.1``, ``v0.19`` or ``0.5.10.post1``; UsageError otherwise."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise UsageError("not a release", where, repr(text)[:60], "such as 0.19.1 or 0.5.10.post1")
    number = int(found[5] or found[6] or 0)
    after = number - 1000 if found[4] == "rc" else number
    return Version(int(found[1]), int(found[2]), int(found[3] or 0), after)


class Subject(Value):
    """The machine and model that a value may depend on; ``traits`` are words such as ``dense`` or ``V2``."""

    gpu: str = ""
    memory_bytes: int = 0
    tensor_parallel: int = 1
    model: str = ""
    traits: frozenset[str] = frozenset()


class Row(Value):
    """A setting's value from a release on, for the subjects that meet its conditions.

    ``given`` is the engine's own value, ``taken`` that of the scenario's key. ``gpu`` and ``model`` are
    beginnings of names, one of which must fit; of ``having`` all traits must be there, of ``lacking`` none.
    """

    release: Version
    given: Any
    taken: Any
    file: str
    mark: str
    gpu: tuple[str, ...] = ()
    model: tuple[str, ...] = ()
    least_bytes: int = 0
    least_tensor_parallel: int = 1
    having: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()

    def fits(self, subject: Subject) -> bool:
        """Return True if a subject meets every condition."""
        return (
            subject.memory_bytes >= self.least_bytes
            and subject.tensor_parallel >= self.least_tensor_parallel
            and (not self.gpu or subject.gpu.startswith(self.gpu))
            and (not self.model or subject.model.startswith(self.model))
            and self.having <= subject.traits
            and not self.lacking & subject.traits
        )

    def covers(self, other: Row) -> bool:
        """Return True if every subject that meets another row's conditions meets this row's."""
        return (
            self.least_bytes <= other.least_bytes
            and self.least_tensor_parallel <= other.least_tensor_parallel
            and all(name.startswith(self.gpu or ("",)) for name in other.gpu or ("",))
            and all(name.startswith(self.model or ("",)) for name in other.model or ("",))
            and self.having <= other.having
            and self.lacking <= other.lacking
        )

    @property
    def condition(self) -> str:
        """The conditions in words; "" for a row of every machine."""
        parts = [
            f"from {self.least_bytes / 2**30:g} GiB" if self.least_bytes else "",
            f"from TP {self.least_tensor_parallel}" if self.least_tensor_parallel > 1 else "",
            " or ".join(self.gpu),
            " or ".join(self.model),
            " ".join(sorted(self.having)),
            " ".join(f"no {trait}" for trait in sorted(self.lacking)),
        ]
        return ", ".join(filter(None, parts))


class ReleaseSetting(Value):
    """A setting of an engine over its releases.

    ``moves`` is the scenario's key, if it has one; ``own_scheduler``: a key of the engine's own scheduler.
    """

    name: str
    about: str
    moves: str
    own_scheduler: bool
    rows: tuple[Row, ...]

    def row(self, version: Version, subject: Subject) -> Row | None:
        """Return the row that counts in a release; None if the table begins later."""
        found = None
        for row in self.rows:
            if row.release <= version and row.fits(subject) and (not found or row.release >= found.release):
                found = row
        return found


class EngineReleases(Value):
    """All settings of an engine: ``read`` are the releases whose files were read, oldest first.

    ``equal`` is the newest release that the recorded decisions of the engine's own classes equal.
    """

    engine: str
    source: str
    read: tuple[Version, ...]
    equal: Version

    @property
    def settings(self) -> dict[str, ReleaseSetting]:
        """The settings by name."""
        return {name: self.setting(name) for name in _table(self.engine) if name not in _HEAD}

    def setting(self, name: str) -> ReleaseSetting:
        """Return a setting by its name."""
        return _setting(self.engine, name)

    def has(self, name: str) -> bool:
        """Return True if the table has a setting."""
        return name in _table(self.engine)

    def moving(self, section: str) -> tuple[ReleaseSetting, ...]:
        """Return the settings that move keys of a scenario's section."""
        return _moving(self.engine, f"{section}.")


#: Keys of a table that are no settings.
_HEAD = ("source", "read", "equal")


def engines() -> tuple[str, ...]:
    """Return the engines that have a table."""
    return entry_names(_FOLDER)


@cache
def engine_releases(engine: str) -> EngineReleases:
    """Return an engine's table; UsageError with the known engines for another name."""
    source, read, equal = (_table(engine)[key] for key in _HEAD)
    return EngineReleases(engine, source, tuple(map(parse_version, read)), parse_version(equal))


@cache
def _table(engine: str) -> dict[str, Any]:
    if engine not in engines():
        raise unknown_name("engine", engine, engines())
    return read_entry(_FOLDER, "engine", engine)


@cache
def _moving(engine: str, start: str) -> tuple[ReleaseSetting, ...]:
    moves = {name: entry.get("moves", "") for name, entry in _table(engine).items() if name not in _HEAD}
    return tuple([_setting(engine, name) for name, key in moves.items() if key.startswith(start)])


@cache
def _setting(engine: str, name: str) -> ReleaseSetting:
    entry = _table(engine)[name]
    rows = tuple([_row(row, entry) for row in entry["since"]])
    about, moves = entry.get("about", name.replace("_", " ")), entry.get("moves", "")
    return ReleaseSetting(name, about, moves, entry.get("own_scheduler", False), rows)


def _row(row: dict[str, Any], entry: dict[str, Any]) -> Row:
    return Row(
        parse_version(row["release"]),
        row["value"],
        row.get("set", row["value"]),
        row.get("file") or entry["file"],
        row.get("mark") or entry.get("mark", "read"),
        tuple(row.get("gpu", ())),
        tuple(row.get("model", ())),
        int(row.get("least_gib", 0) * 2**30),
        row.get("least_tp", 1),
        frozenset(row.get("with", ())),
        frozenset(row.get("without", ())),
    )


class Release(Value):
    """An engine at a release, as ``replica.release`` names it."""

    engine: str
    version: Version

    def __str__(self) -> str:
        """Return the name in the key's syntax."""
        return f"{self.engine}@{self.version}"

    @property
    def table(self) -> EngineReleases:
        """The engine's table."""
        return engine_releases(self.engine)

    @property
    def served_by(self) -> Version:
        """The release whose files answer: the newest that was read up to this one."""
        return max(read for read in self.table.read if read <= self.version)

    @property
    def note(self) -> str:
        """The read release that answers for this one; "" if this one was read."""
        if self.served_by == self.version:
            return ""
        newest = self.table.read[-1]
        later = f", newer than the table, which ends at {newest}" if self.version > newest else ""
        return f"{self}{later}: values of {self.engine} {self.served_by}"

    def row(self, setting: str, subject: Subject = Subject()) -> Row:  # noqa: B008 - immutable
        """Return the row of a setting; UsageError if the release is older than all its rows."""
        found = self.table.setting(setting).row(self.version, subject)
        if found is None:
            raise UsageError(f"{setting} is not known of {self}")
        return found

    def value(self, setting: str, subject: Subject = Subject()) -> Any:  # noqa: B008 - immutable
        """Return the scenario's value of a setting; UsageError as ``row``."""
        return self.row(setting, subject).taken


def parse_release(text: str) -> Release:
    """Return the release of ``vllm@0.19.1``; ``vllm@0.19`` is the newest of 0.19 that was read.

    Raises UsageError for an unknown engine, for text that is no version, and before the first that was read.
    """
    engine, at, version = text.partition("@")
    if not at:
        expected = " or ".join(f"{name}@{engine_releases(name).equal}" for name in engines())
        raise UsageError("not an engine's release", got=repr(text)[:60], expected=expected)
    found, read = parse_version(version), engine_releases(engine).read
    if version.count(".") == 1:
        found = max([each for each in read if each[:2] == found[:2]], default=found)
    if found < read[0]:
        raise UsageError(f"older than the table of {engine}", got=version, expected=f"{read[0]} or later")
    return Release(engine, found)


def newest_equal(engine: str) -> Release:
    """Return the newest release of an engine that its recorded decisions equal: the default."""
    return Release(engine, engine_releases(engine).equal)
