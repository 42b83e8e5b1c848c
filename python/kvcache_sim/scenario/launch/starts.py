"""Rows of ``starts.toml``: commands and images after which an engine's arguments begin."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kvcache_sim._core import toml_values
from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.values import Value
from kvcache_sim.model.releases import parse_version

#: A version at the beginning of an image's tag: v0.4.1.post4-rocm620.
_TAG = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:\.?(?:rc|post)\d+)?)(?![\w.])")
_REQUIRED = re.compile(r"\b(vllm|sglang|tensorrt[-_]llm)(?:\[[\w,-]*\])?(?:==|@)v?(\d[\w.]*)")
#: Commands that name an engine's command without starting it.
_MENTIONS = {"echo", "printf", "pkill", "pgrep", "grep", "kill", "ps", "cat", "pip", "apt", "git", "alias"}


class Start(Value):
    """An engine's name, the words before its own, its arguments, and the router in front of it."""

    engine: str
    before: tuple[str, ...]
    arguments: tuple[str, ...]
    router: str = ""


@cache
def _table() -> Mapping[str, Any]:
    return toml_values(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def find_start(words: Sequence[str]) -> Start | None:
    """Return where an engine's arguments begin: after its command; None if no engine starts."""
    if words and words[0].rpartition("/")[2] in _MENTIONS:
        return None
    for at in range(len(words)):
        for row in _table()["command"]:
            wanted = row["words"]
            found = words[at : at + len(wanted)]
            if len(found) == len(wanted) and all(map(_is_same, found, wanted)):
                before, after = tuple(words[:at]), tuple(words[at + len(wanted) :])
                return Start(row["engine"], before, after, row.get("router", ""))
    return None


def find_image(words: Sequence[str]) -> Start | None:
    """Return where an engine's arguments begin after an image whose entry point is its command."""
    for at, word in enumerate(words):
        row = _image(word)
        if row.get("entry") and "pull" not in words[:at]:
            skipped = at + 1 + (words[at + 1 : at + 2] == ["serve"])
            return Start(row["engine"], tuple(words[: at + 1]), tuple(words[skipped:]))
    return None


def release_of(words: Sequence[str], engine: str) -> str:
    """Return the release that an image's tag or a requirement says: ``vllm@0.11.2``; "" if none does."""
    for word in words:
        row, required = _image(word), _REQUIRED.search(word)
        if row.get("release") and row["engine"] == engine:
            found = _TAG.match(word.rpartition("/")[2].partition(":")[2])
        else:
            found = _TAG.match(required[2]) if required and required[1] == engine else None
        if found:
            try:
                return f"{engine}@{parse_version(found[1])}"
            except UsageError:
                continue
    return ""


def router_of(name: object) -> str:
    """Return the scenario's policy for a router's own name; "" for another one."""
    return str(_table()["router"].get(str(name).lower(), ""))


def _is_same(word: str, wanted: str) -> bool:
    return word == wanted or word.endswith(f"/{wanted}") or word.startswith(f"{wanted}@")


def _image(word: str) -> Mapping[str, Any]:
    folder, _, last = word.removeprefix("--image=").partition("@sha256")[0].rpartition("/")
    path = f"{folder}/{last.partition(':')[0]}".lstrip("/")
    return next(
        (row for row in _table()["image"] if path == row["name"] or path.endswith(f"/{row['name']}")), {}
    )
