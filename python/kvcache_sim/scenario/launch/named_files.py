"""Files that a text names: those it writes itself, else regular files relative to the working directory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.regular_files import open_regular
from kvcache_sim.scenario.launch.echo import shown
from kvcache_sim.scenario.yaml_tree import MAX_BYTES, read_tree

#: Flags that name a file of options, and whether the file's options come before the line's own.
_FLAGS = {"vllm": ("--config",), "sglang": ("--config",)}
_AFTER = {"trtllm": ("--extra_llm_api_options", "--extra-engine-args", "--config")}
_LMCACHE = "LMCACHE_CONFIG_FILE"


def read_named(name: str, files: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return the settings of a YAML file. Raises UsageError if it is not there, or is no mapping."""
    last = name.rpartition("/")[2]
    text = files.get(
        name, next((text for path, text in files.items() if path.rpartition("/")[2] == last), None)
    )
    if text is not None:
        return read_tree(text.encode(), shown(name)).values
    try:
        with open_regular(Path(name)) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError):
        got, hint = repr(shown(name))[:90], "run kvsim where it is, or write its settings as flags"
        raise UsageError("a file that the line names is not here", where, got, hint=hint) from None
    return read_tree(data, shown(name)).values


def file_options(engine: str, words: list[str], files: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the options of the files that arguments name: those before the arguments, and those after."""
    before = [
        word for flag, name in _named(words, _FLAGS.get(engine, ())) for word in _words(name, files, flag)
    ]
    after = [
        word
        for flag, name in _named(words, _AFTER.get(engine, ()))
        for word in _words(name, files, flag, nested=True)
    ]
    return before, after


def with_lmcache_file(environment: dict[str, str], files: Mapping[str, str]) -> dict[str, str]:
    """Return the variables with the settings of LMCache's file, over which its variables prevail."""
    name = environment.get(_LMCACHE)
    if not name:
        return environment
    read = read_named(name, files, _LMCACHE)
    described = {f"LMCACHE_{key.upper()}": _text(value) for key, value in read.items()}
    return described | {key: value for key, value in environment.items() if key != _LMCACHE}


def options_of(settings: Mapping[str, Any], prefix: str = "--") -> Iterator[str]:
    """Yield a mapping's entries as options; of nested mappings as one JSON object each."""
    for key, value in settings.items():
        if value is True or value is None:
            yield f"{prefix}{key}"
        elif value is False:
            yield from (f"{prefix}{key}", "false")
        elif isinstance(value, list) and all(not isinstance(one, dict | list) for one in value):
            yield from (f"{prefix}{key}", *map(_text, value))
        else:
            yield f"{prefix}{key}={_text(value)}"


def _named(words: list[str], flags: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for at, word in enumerate(words):
        flag, equals, name = word.partition("=")
        if flag in flags and (equals or words[at + 1 :]):
            yield flag, name if equals else words[at + 1]


def _words(name: str, files: Mapping[str, str], flag: str, *, nested: bool = False) -> Iterator[str]:
    """Return the options of a file; ``nested``: an entry of a mapping in it is an option of its own, a.b."""
    settings = read_named(name, files, flag)
    if nested:
        for key, below in list(settings.items()):
            if isinstance(below, dict) and key == "kv_cache_config":
                settings |= {f"{key}.{name}": one for name, one in settings.pop(key).items()}
    return options_of(settings)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value) if isinstance(value, dict | list) else "" if value is None else str(value)
