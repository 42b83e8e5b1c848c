"""Loader of plug-ins: ``file.py:Name``, ``pkg.mod:Name``, or the name of an entry point."""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import re
import sys
import traceback
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kvcache_sim.base.errors import UsageError
from kvcache_sim.base.spelling import close_matches
from kvcache_sim.policies.plugins.contract import PolicyViolation
from kvcache_sim.policies.plugins.permission import announce, ask_to_load
from kvcache_sim.policies.plugins.stand_ins import stand_ins
from kvcache_sim.policies.plugins.watchdog import watched

ENTRY_POINT_GROUP = "kvsim.eviction"
ADAPTERS = ("vllm", "sglang", "libcachesim")
_ARGUMENTS = re.compile(r"(.*?)(?:\((.*)\))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A loaded object, its text and source; ``adapter`` is empty for kvsim's own contract."""

    text: str
    target: Any
    adapter: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    source: str = ""
    source_sha256: str = ""

    @property
    def name(self) -> str:
        """Return the policy's name: its ``name`` attribute, else its name in the file."""
        named = getattr(self.target, "name", None)
        return named if isinstance(named, str) and named else getattr(self.target, "__name__", self.text)


def entry_point_names() -> list[str]:
    """Return the names that installed packages provide as eviction policies, sorted."""
    return sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP))


#: Classes and functions of this process, by the text that names each.
_given: dict[str, Any] = {}


def name_given(target: Any) -> str:
    """Return the text of a class or function of this process: another process loads it from its file."""
    try:
        file = Path(inspect.getsourcefile(target) or "").absolute()
    except TypeError:  # of a notebook
        file = Path()
    name = re.sub(r"\W+", "_", target.__qualname__)
    text = name = f"{file if file.suffix == '.py' and file.is_file() else target.__module__}:{name}"
    number = 1
    while _given.setdefault(text, target) is not target:
        number += 1
        text = f"{name}_{number}"
    return text


def load_plugin(text: str, group: str = ENTRY_POINT_GROUP) -> Plugin:
    """Load the plug-in that a text names; raises ``UsageError`` with the file and line of the error.

    Runs its code, if ``permission`` allows it.

    A name without a file or module is looked up among the entry points of ``group``. Keyword arguments follow
    the name: ``file.py:TwoQueue(probation=0.5)``.
    """
    ask_to_load(text)
    if text in _given:
        file = text.rpartition(":")[0]
        return Plugin(text, _given[text], "", {}, *_source(file if file.endswith(".py") else ""))
    adapter, _, rest = text.partition(":")
    if adapter not in ADAPTERS:
        adapter, rest = "", text
    match = _ARGUMENTS.fullmatch(rest)
    path, arguments = (match[1], _arguments(match[2] or "", text)) if match else (rest, {})
    file, colon, name = path.rpartition(":")
    if adapter == "libcachesim" and not colon:
        file, name = path, ""
    elif not colon:
        return _from_entry_point(text, path, arguments, group)
    elif not name.isidentifier() or not (file.endswith(".py") or all(file.split("."))):
        raise UsageError(
            "names no policy",
            where="--policy",
            got=repr(text),
            expected="file.py:name or package.module:name",
        )
    module = _import_file(Path(file), text) if file.endswith(".py") else _import_module(file, text)
    target = module if not name else _member(module, name, text)
    return Plugin(text, target, adapter, arguments, *_source(getattr(module, "__file__", None) or ""))


def _source(file: str) -> tuple[str, str]:
    """Return a plug-in's file and its SHA-256, empty without a file."""
    return file, hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


def _from_entry_point(text: str, name: str, arguments: dict[str, Any], group: str) -> Plugin:
    found = [point for point in entry_points(group=group) if point.name == name]
    if not found:
        raise UsageError("no such policy", where="--policy", got=repr(text), hint="kvsim policies list")
    if len(found) > 1:
        raise UsageError("several packages offer this policy", where="--policy", got=repr(text))
    return Plugin(text, _guarded(found[0].load, text), "", arguments, found[0].value)


def _import_file(path: Path, text: str) -> ModuleType:
    if not path.is_file():
        folder = path.parent
        near = sorted(p.name for p in folder.glob("*.py")) if folder.is_dir() else []
        close = close_matches(path.name, near, n=1)
        hint = f"did you mean {close[0]}?" if close else "write one with kvsim policies new NAME"
        raise UsageError("policy file not found", where=str(path), hint=hint)
    name = f"kvsim_policy_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError("not a Python file", where=str(path))
    module = module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _guarded(lambda: loader.exec_module(module), text)
    return module


def _import_module(name: str, text: str) -> ModuleType:
    module: ModuleType = _guarded(lambda: importlib.import_module(name), text)
    return module


def _guarded(load: Any, text: str) -> Any:
    """Run an import; any exception becomes one line with the file and line of its origin."""
    announce(text)
    try:
        with watched(text), stand_ins():
            return load()
    except PolicyViolation as error:
        raise UsageError(error.what, where=error.where, got="no end of the import") from None
    except SyntaxError as error:
        raise UsageError(f"syntax error: {error.msg}", where=f"{error.filename}:{error.lineno}") from None
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [
            f for f in frames if f.filename not in (__file__, importlib.__file__) and f.filename[0] != "<"
        ]
        raise UsageError(
            f"does not import: {type(error).__name__}: {error}",
            where=f"{theirs[-1].filename}:{theirs[-1].lineno}" if theirs else text,
        ) from None


def _member(module: ModuleType, name: str, text: str) -> Any:
    if not hasattr(module, name):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        close = close_matches(name, names, n=1)
        raise UsageError(
            f"no {name} in this file",
            where=text,
            expected=f"did you mean {close[0]}?"
            if close
            else f"one of: {', '.join(names) or 'nothing callable'}",
        )
    return getattr(module, name)


def _arguments(text: str, where: str) -> dict[str, Any]:
    """Return the keyword arguments written after a name; values are literals."""
    if not text.strip():
        return {}
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.args:
            raise ValueError("only keyword arguments")
        given = {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg is not None}
        if len(given) < len(call.keywords):
            raise ValueError("only keyword arguments, each once")
        return given
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"arguments not understood: {error}",
            where=where,
            expected="NAME(key=value, …) with literal values",
        ) from None
