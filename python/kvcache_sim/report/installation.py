"""Checks of the installation, piece by piece."""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from kvcache_sim import __version__
from kvcache_sim.base.units import format_bytes

_LEAST_FREE_BYTES = 1 << 30
#: A package of another project that installs a package of our import name over ours.
_INTRUDER = "kvcache-simulator"
_EXTRAS = {"report": ("altair", "vl_convert"), "ray": ("ray",), "search": ("optuna",)}


class Finding(NamedTuple):
    """The result of one check."""

    verdict: Literal["ok", "missing", "warning", "broken"]
    what: str
    detail: str


def check_installation() -> list[Finding]:
    """Return the findings in printed order. Cost: imports the native module, nothing heavy."""
    return [
        Finding(
            "ok",
            "kvsim",
            f"{__version__} in {os.path.dirname(importlib.import_module('kvcache_sim').__file__ or '')}",
        ),
        _native(),
        _intruder(),
        Finding("ok" if sys.version_info >= (3, 11) else "broken", "python", platform.python_version()),
        *(_library(name) for name in ("numpy", "pyarrow", "msgspec", "ruamel.yaml", "typer", "rich")),
        *(_extra(name, modules) for name, modules in _EXTRAS.items()),
        _packaged(),
        _measured_kernels(),
        _cache_folder(),
        _cores(),
        _disk_space(),
    ]


def _native() -> Finding:
    try:
        core = importlib.import_module("kvcache_sim._core")
    except ImportError as error:
        return Finding("broken", "native module", f"{error}; build it with 'make build' or install a wheel")
    version, is_release = getattr(core, "__version__", ""), bool(getattr(core, "__release__", False))
    if version != __version__:
        return Finding(
            "broken", "native module", f"is {version}, the package is {__version__}: build it again"
        )
    if not is_release:
        return Finding(
            "warning", "native module", f"{version}, a debug build: many times slower ('make build')"
        )
    return Finding("ok", "native module", f"{version}, release build")


def _intruder() -> Finding:
    try:
        found = metadata.version(_INTRUDER)
    except metadata.PackageNotFoundError:
        return Finding("ok", "import name", f"no package of another project ({_INTRUDER}) claims it")
    hint = f"pip uninstall {_INTRUDER} kvcache-sim, then install kvcache-sim again"
    return Finding("broken", "import name", f"{_INTRUDER} {found} installs 'kvcache_sim' too: {hint}")


def _library(name: str) -> Finding:
    try:
        return Finding("ok", name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding("broken", name, "not installed")


def _extra(name: str, modules: tuple[str, ...]) -> Finding:
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        return Finding("missing", f"extra {name}", f"pip install 'kvcache-sim[{name}]'")
    return Finding("ok", f"extra {name}", ", ".join(modules))


def _packaged() -> Finding:
    """Return the finding on the packaged models, GPUs, links and sets, each of which is read."""
    from kvcache_sim.model.channels import channel_names, load_channel
    from kvcache_sim.model.gpus import gpu_names, load_gpu
    from kvcache_sim.model.model_file import load_model, model_names
    from kvcache_sim.model.step_times import load_step_time, step_time_names

    counts = []
    loaders: tuple[tuple[str, tuple[str, ...], Callable[[str], object]], ...] = (
        ("step-time sets", step_time_names(), load_step_time),
        ("models", model_names(), load_model),
        ("GPUs", gpu_names(), load_gpu),
        ("links", channel_names(), load_channel),
    )
    for what, names, load in loaders:
        try:
            for name in names:
                load(name)
        except Exception as error:
            return Finding("broken", "packaged files", f"{what}: {error}")
        counts.append(f"{len(names)} {what}")
    return Finding("ok", "packaged files", ", ".join(counts) + "; roofline:MODEL@GPU of any of them")


def _measured_kernels() -> Finding:
    """Return the finding on the source of measured kernels, without importing it."""
    what = "aiconfigurator:"
    if sys.version_info >= (3, 14):
        return Finding("missing", what, f"has no wheel for python {platform.python_version()}")
    try:
        version = metadata.version("aiconfigurator-core")
    except metadata.PackageNotFoundError:
        return Finding("missing", what, "pip install 'kvcache-sim[hardware]' (measured kernels)")
    return Finding("ok", what, f"aiconfigurator-core {version}")


def _cache_folder() -> Finding:
    """Return the finding on the folder of tables made from slow sources; the first table creates it."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kvsim"
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("warning", "cache", f"{folder}: no right to write; tables are made anew each time")
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return Finding("ok", "cache", f"{format_bytes(sum(sizes))} in {len(sizes)} files in {folder}")


def _cores() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Finding("ok", "cores", f"{usable} usable of {os.cpu_count()}")


def _disk_space() -> Finding:
    folder = tempfile.gettempdir()
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        return Finding("broken", "temporary files", f"{folder}: {error.strerror}")
    verdict: Literal["ok", "warning"] = "ok" if free >= _LEAST_FREE_BYTES else "warning"
    return Finding(verdict, "temporary files", f"{format_bytes(free)} free in {folder}")
