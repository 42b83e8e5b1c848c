"""A table sampled from another source, and its cache file: atomic writes, invalid files are replaced."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcache_sim.extras.calibrate.aiconfigurator.deployment import Deployment
from kvcache_sim.extras.calibrate.aiconfigurator.library import configuration_path, content_hash
from kvcache_sim.model.parametric import ParametricStepTime, points_ms
from kvcache_sim.model.points import Point, Points
from kvcache_sim.model.residual_grid import ResidualGrid, Residuals
from kvcache_sim.model.step_time import StepTime, StepTimeTable

_NS_PER_MS = 1e6
_FS_PER_NS = 1e6


@dataclass(frozen=True, slots=True)
class SampledStepTime(StepTime):
    """The coefficients fitted to a source, and notes about it, one per line.

    Unlike in a fitted set, there are separate bases of decode steps, of steps with a chunk and of steps whose
    chunk has a past. Each base may fall from one token count to the next, as kernels change at token counts.
    KV may also cost less in steps with a chunk. Time never falls with KV or with a past, unless ``residuals``
    (of the linear terms) follow a source that does.
    """

    model: ParametricStepTime
    facts: tuple[str, ...] = ()
    residuals: Residuals = Residuals()

    def table(self, max_tokens: int, max_sequences: int) -> StepTimeTable:
        """Return the model as integers, for steps of up to ``max_tokens`` and ``max_sequences``."""
        model = self.model
        linear = replace(
            model, base_points=(Point(1.0, 0.0),), past_points=(), decode_points=(), kv_ms_per_thousand=0.0
        ).table(max_tokens, max_sequences)
        own_decode = _ns(model.decode_points, max_sequences)
        return replace(
            linear,
            base_ns=_ns(model.base_points, max_tokens) + linear.shared.even(max_tokens + 1),
            past_base_ns=_ns(model.past_points, max_tokens) + linear.shared.even(max_tokens + 1),
            decode_base_ns=linear.decode_base_ns + own_decode,
            kv_decode_fs=round(model.kv_ms_per_thousand * _NS_PER_MS * _FS_PER_NS / 1e3),
            residuals=self.residuals,
        )


def _ns(points: Points, most: int) -> NDArray[np.int64]:
    """Return the ns of each count up to ``most``; 0 for count 0."""
    counts = np.arange(most + 1)
    base = np.rint(points_ms(points, counts) * _NS_PER_MS).astype(np.int64)
    base[0] = 0
    return base


#: Incremented whenever the same inputs would give another table.
_TABLE_VERSION = 5


def cache_folder() -> Path:
    """Return the folder of the tables: ``$XDG_CACHE_HOME/kvsim/step-times``."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "kvsim" / "step-times"


def table_key(deployment: Deployment) -> str:
    """Return the hash of the deployment, its model's configuration, the library's build, kvsim's version."""
    path = configuration_path(deployment.model)
    configuration = hashlib.sha256(path.read_bytes()).hexdigest() if path is not None else ""
    parts = [_TABLE_VERSION, asdict(deployment), configuration, content_hash()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_table(key: str) -> SampledStepTime | None:
    """Return the cached table of a key; None if there is no readable one."""
    try:
        kept = json.loads((cache_folder() / f"{key}.json").read_text(encoding="utf-8"))
        values: dict[str, Any] = {
            k: tuple(map(tuple, v)) if isinstance(v, list) else v for k, v in kept["model"].items()
        }
        residuals = Residuals(**{name: _grid(grid) for name, grid in kept["residuals"].items()})
        return SampledStepTime(ParametricStepTime(**values), tuple(kept["facts"]), residuals)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _grid(kept: dict[str, Any]) -> ResidualGrid:
    return ResidualGrid(tuple(kept["counts"]), tuple(kept["tokens"]), tuple(map(tuple, kept["ns"])))


def keep_table(key: str, table: SampledStepTime) -> None:
    """Cache a table under a key; silently skipped if the folder is not writable."""
    with contextlib.suppress(OSError):
        folder = cache_folder()
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(table), file)
        os.replace(name, folder / f"{key}.json")
