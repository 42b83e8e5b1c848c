"""Facts about the library that do not need its import: folder, models, systems, content."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvcache_sim.base.errors import UsageError

#: Installation command.
INSTALL = "pip install 'kvcache-sim[hardware]' (aiconfigurator-core; Python 3.11 to 3.13)"


@cache
def library_folder() -> Path | None:
    """Return the library's folder; None if it is not installed."""
    spec = find_spec("aiconfigurator_core")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def installed_folder() -> Path:
    """Return the library's folder; UsageError with the installation command if it is not installed."""
    folder = library_folder()
    if folder is None:
        raise UsageError("aiconfigurator-core is not installed", hint=INSTALL)
    return folder


def content_hash() -> str:
    """Return the hash of the library's list of file hashes: it identifies one build."""
    folder = installed_folder()
    records = sorted(folder.parent.glob("aiconfigurator_core-*.dist-info/RECORD"))
    digest = hashlib.sha256()
    for record in records:
        digest.update(record.read_bytes())
    return digest.hexdigest()


def configuration_path(model: str) -> Path | None:
    """Return the ``config.json`` of a model: of a local folder, or the file packaged in the library."""
    local = Path(model) / "config.json"
    if local.is_file():
        return local
    folder = library_folder()
    packaged = folder and folder / "model_configs" / f"{model.replace('/', '--')}_config.json"
    return packaged if packaged is not None and packaged.is_file() else None


@cache
def read_packaged_alone() -> None:
    """Have the library read every packaged configuration, and none over the network.

    It packages more configurations than it lists, and downloads those of models that it does not list.
    """
    from aiconfigurator_core.sdk import common, utils

    common.DefaultHFModels.update(model.replace("--", "/", 1) for model in _packaged())
    utils._download_hf_json = _refuse_download


def _refuse_download(model: str, file: str, **_: bool) -> None:
    raise FileNotFoundError(f"{file} of {model} is not packaged")


def _packaged() -> list[str]:
    """Return the packaged models, ``--`` in place of the first slash."""
    names = (installed_folder() / "model_configs").glob("*_config.json")
    stems = sorted(name.name.removesuffix("_config.json") for name in names)
    return [stem for stem in stems if not stem.endswith("_hf_quant")]


def model_configuration(model: str) -> dict[str, Any]:
    """Return a model's configuration; UsageError with the nearest names if there is none."""
    from kvcache_sim.model.catalog import unknown_name

    path = configuration_path(model)
    if path is None:
        known = tuple(sorted(stem.replace("--", "/", 1) for stem in _packaged()))
        refusal = unknown_name("model", model, known)
        refusal.expected = f"one of {len(known)} models of the library, or a folder with config.json"
        raise refusal
    loaded = json.loads(path.read_text(encoding="utf-8"))
    return dict(loaded)


def is_mixture(configuration: dict[str, Any]) -> bool:
    """True if a configuration has experts."""
    inner = configuration.get("text_config", configuration)
    keys = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    return any((inner.get(key) or configuration.get(key) or 0) > 1 for key in keys)


def check_system(system: str, engine: str) -> None:
    """Raise UsageError if the library has no kernels of a system under an engine."""
    data = installed_folder() / "systems" / "data"
    measured = sorted(path.name for path in data.iterdir() if (path / "gemm" / engine).is_dir())
    if system not in measured:
        what = f"no kernels of {system} under {engine}"
        raise UsageError(what, expected="one of " + ", ".join(measured))
