"""Parser of a launch line: engine, model and flags."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, replace

from kvcache_sim.base.errors import UsageError
from kvcache_sim.scenario.launch.flags import Engine, launch_engines

_WHERE = "--from"
#: An assignment of an environment variable before the engine's command.
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_NUMBER = re.compile(r"-[0-9.]+$")
#: A container image whose entry point is the engine's command, with its tag.
_IMAGE = re.compile(r"(?:docker\.io/)?(vllm/vllm-openai)(?:[:@].*)?$")
#: Values that give access: of variables and of flags, which may take several.
_SECRET = re.compile(
    r"(\b[A-Z][A-Z0-9_]*(?:TOKEN|KEY|SECRET|PASSWORD)=)\S+"
    r"|(--[a-z-]*(?:api-key|token|password)(?:=|\s+))(?!-)\S+(?:\s+(?!-)\S+)*"
)


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """A parsed launch line. ``flags`` are by their long names; "" for a flag without a value.

    ``environment`` are the variables that the line sets, as they were written.
    """

    engine: Engine
    model: str
    flags: dict[str, str]
    environment: tuple[str, ...] = ()
    #: The engine's release such as ``vllm@0.19.1``, if the line says it.
    release: str = ""


def parse_launch(text: str) -> LaunchLine:
    """Parse a launch line: ``vllm serve MODEL …`` or ``python -m sglang.launch_server …``.

    Raises UsageError for any other line, and for a line without a model.
    """
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError("not a command line", where=_WHERE, got=str(error)) from None
    words = [_IMAGE.sub(r"\1", word) for word in words]
    for engine in launch_engines():
        for start in engine.starts:
            locations = [k for k in range(len(words)) if words[k : k + len(start)] == list(start)]
            if locations:
                parts = _parts(engine, words[locations[0] + len(start) :])
                before = tuple(word for word in words[: locations[0]] if _VARIABLE.match(word))
                return replace(parts, environment=before)
    known = " or ".join(f"'{' '.join(engine.starts[0])} …'" for engine in launch_engines())
    raise UsageError("not a launch line", where=_WHERE, got=repr(text)[:60], expected=known)


def without_secrets(text: str) -> str:
    """Return a line or a comment without the values of keys, tokens and passwords."""
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", text)


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
        if engine.underscores and "." not in name:
            name = name.replace("_", "-")
        known = engine.spellings()
        if name not in known:
            near = {spelled.flag.name: one for one, spelled in known.items() if one.startswith(name)}
            name = next(iter(near.values())) if len(near) == 1 else name
        spelled = known.get(name)
        if not equals and not (spelled and spelled.flag.alone) and left and _is_value(left[0]):
            value = left.pop(0)
            while spelled and spelled.flag.takes == "several" and left and _is_value(left[0]):
                value += f" {left.pop(0)}"
        if spelled and spelled.flag.alone and not spelled.on:
            name, value = spelled.flag.name, "false"
        flags[spelled.flag.name if spelled else name] = value
    model = next((flags.pop(name) for name in engine.models if name in flags), model)
    if not model:
        raise UsageError("no model", where=_WHERE, expected=f"{' '.join(engine.starts[0])} MODEL …")
    return LaunchLine(engine, model, flags)


def _is_value(word: str) -> bool:
    """Return True if a word after a flag is its value: not a flag, or a negative number."""
    return not word.startswith("-") or _NUMBER.match(word) is not None
