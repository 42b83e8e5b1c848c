"""Stand-ins for what an engine's cache classes import and the decisions do not need: tensors, kernels, metrics."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import inspect
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np


class Real(types.SimpleNamespace):
    """Classes and modules of a wheel, by name, and what was stood in for (``stubbed``)."""


class Fields(types.SimpleNamespace):
    """A stand-in that has the fields it is given, and no others."""


class Record:
    """A stand-in for a configuration: the values given, None for all else."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


class Anything:
    """An object that can be called, subclassed, indexed and asked for any attribute."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        is_decorated = len(args) == 1 and not kwargs and isinstance(args[0], types.FunctionType | type)
        return args[0] if is_decorated else Anything()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __getitem__(self, key: Any) -> Any:
        return Anything()

    def __bool__(self) -> bool:
        return False

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __or__

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (type("Base", (Anything,), {}),)


class Tensor(np.ndarray):
    """Numbers in a row, with the few methods of ``torch.Tensor`` that trees call."""

    def clone(self) -> Tensor:
        return self.copy().view(Tensor)

    def long(self) -> Tensor:
        return self.astype(np.int64).view(Tensor)

    def numel(self) -> int:
        return int(self.size)

    def split(self, size: int) -> list[Tensor]:
        return [self[at : at + size] for at in range(0, len(self), size)]

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.copy().view(Tensor)


def tensor(values: Any, dtype: Any = None, device: Any = None) -> Tensor:
    return np.array(values, np.int64).view(Tensor)


class StubModule(types.ModuleType):
    """A module that has every name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for every module below some packages that is not to be the real one."""

    def __init__(self, packages: tuple[str, ...], real: frozenset[str]) -> None:
        self.packages, self.real, self.stubbed = packages, real, list[str]()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] not in self.packages or name in self.real:
            return None
        self.stubbed.append(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = StubModule(spec.name)
        if spec.name == "torch":
            module.Tensor, module.tensor, module.int64 = Tensor, tensor, np.int64  # type: ignore[attr-defined]
            module.iinfo = np.iinfo  # type: ignore[attr-defined]
            module.empty = lambda shape, **_: np.empty(shape, np.int64).view(Tensor)  # type: ignore[attr-defined]
            module.cat = lambda parts, **_: np.concatenate(parts).view(Tensor)  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def known(made: Any, *given: Any, **values: Any) -> Any:
    """Call with the arguments that a release knows; older ones lack the settings of later rules."""
    names = inspect.signature(made).parameters
    return made(*given, **{name: value for name, value in values.items() if name in names})


def name_packages(wheel: Path, *packages: str, kind: type[types.ModuleType] = types.ModuleType) -> None:
    """Name packages whose modules are those of an unpacked wheel, without running their ``__init__``."""
    for package in packages:
        module = kind(package)
        module.__path__ = [str(wheel / package.replace(".", "/"))]
        sys.modules[package] = module


class Rows:
    """SGLang's table of one request's slots."""

    def __init__(self, tokens: int) -> None:
        self.req_to_token = tensor([[0] * tokens])

    def write(self, index: Any, values: Any) -> None:
        self.req_to_token[index] = values


def install(packages: tuple[str, ...], real: frozenset[str]) -> StubFinder:
    finder = StubFinder(packages, real)
    sys.meta_path.insert(0, finder)
    return finder
