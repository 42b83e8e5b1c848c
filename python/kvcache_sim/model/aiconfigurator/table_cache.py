"""Tables kept on disk by the hash of what they are made of; writes are atomic, a broken file is made anew."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kvcache_sim.model.aiconfigurator.deployment import Deployment
from kvcache_sim.model.aiconfigurator.library import configuration_path, content_hash
from kvcache_sim.model.aiconfigurator.sampled import SampledStepTime
from kvcache_sim.model.parametric import ParametricStepTime
from kvcache_sim.model.rest_grid import RestGrid, Rests

#: Raised whenever the same inputs would give another table.
_TABLE_VERSION = 4


def cache_folder() -> Path:
    """Return the folder of the tables: ``$XDG_CACHE_HOME/kvsim/step-times``."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "kvsim" / "step-times"


def table_key(deployment: Deployment) -> str:
    """Return the hash of the deployment, its model's configuration, the library's build and our version."""
    path = configuration_path(deployment.model)
    configuration = hashlib.sha256(path.read_bytes()).hexdigest() if path is not None else ""
    parts = [_TABLE_VERSION, asdict(deployment), configuration, content_hash()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_table(key: str) -> SampledStepTime | None:
    """Return the table kept under a key, or None when there is none that can be read."""
    try:
        kept = json.loads((cache_folder() / f"{key}.json").read_text(encoding="utf-8"))
        values: dict[str, Any] = {
            k: tuple(map(tuple, v)) if isinstance(v, list) else v for k, v in kept["model"].items()
        }
        rests = Rests(**{name: _grid(grid) for name, grid in kept["rests"].items()})
        return SampledStepTime(ParametricStepTime(**values), tuple(kept["facts"]), rests)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _grid(kept: dict[str, Any]) -> RestGrid:
    return RestGrid(tuple(kept["counts"]), tuple(kept["tokens"]), tuple(map(tuple, kept["ns"])))


def keep_table(key: str, table: SampledStepTime) -> None:
    """Keep a table under a key; a folder that cannot be written to keeps nothing, and nothing is said."""
    with contextlib.suppress(OSError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(table), file)
        os.replace(name, folder / f"{key}.json")
