"""A launch line taken apart: which engine, which model, which flags."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from kvcache_sim.errors import UsageError
from kvcache_sim.scenario.launch.flags import ENGINES, Engine

_WHERE = "--from"


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """What was typed to start an engine. ``flags`` are by their long names; "" where one has no value."""

    engine: Engine
    model: str
    flags: dict[str, str]


def parse_launch(text: str) -> LaunchLine:
    """Return a launch line's parts: ``vllm serve MODEL …`` or ``python -m sglang.launch_server …``.

    Environment variables before it are passed over. Raises UsageError for any other line, and for one without
    a model.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError("not a command line", where=_WHERE, got=str(error)) from None
    for engine in ENGINES:
        for start in engine.starts:
            places = [k for k in range(len(words)) if words[k : k + len(start)] == list(start)]
            if places:
                return _parts(engine, words[places[0] + len(start) :])
    known = " or ".join(f"'{' '.join(engine.starts[0])} …'" for engine in ENGINES)
    raise UsageError("not a launch line", where=_WHERE, got=repr(text)[:60], expected=known)


def _parts(engine: Engine, words: list[str]) -> LaunchLine:
    flags: dict[str, str] = {}
    model = ""
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            if model:
                raise UsageError("a word that belongs to no flag", where=_WHERE, got=repr(word))
            model = word
            continue
        name, equals, value = word.partition("=")
        name = engine.short.get(name, name)
        if not equals and left and not left[0].startswith("-") and name not in engine.switches:
            value = left.pop(0)
        flags[name] = value
    model = next((flags.pop(name) for name in engine.models if name in flags), model)
    if not model:
        raise UsageError("no model", where=_WHERE, expected=f"{' '.join(engine.starts[0])} MODEL …")
    return LaunchLine(engine, model, flags)
