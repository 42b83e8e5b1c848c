"""The errors of the rules of KV capacity on engines' logs, and the estimate of CUDA graphs.

``data/kv_capacity.toml`` has the half-widths of the 90 % bands by engine and era;
``tests/inputs/test_kv_capacity.py`` computes them again from the logs of ``docs/data/kv-capacity-logs.toml``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from kvcache_sim._core import toml_values
from kvcache_sim.model.engine_memory import Estimate
from kvcache_sim.model.releases import Release, parse_version

_GIB = 2**30


@cache
def _table() -> dict[str, Any]:
    path = Path(__file__).parent / "data" / "kv_capacity.toml"
    table: dict[str, Any] = toml_values(path.read_text(encoding="utf-8"))
    return table


def band_bytes(release: Release) -> int:
    """Return half the width of the 90 % band on a GPU, without the graphs' own interval."""
    since = {
        parse_version(row["since"]): row["half_gib"]
        for row in _table()["band"]
        if row["engine"] == release.engine and parse_version(row["since"]) <= release.version
    }
    return int(since[max(since)] * _GIB)


def graphs_estimate(sizes: int) -> Estimate:
    """Return the estimate of CUDA graphs of so many sizes over all modes, with its 90 % interval."""
    graphs = _table()["graphs"]
    estimate = graphs["first_gib"] + graphs["size_gib"] * sizes
    return Estimate(*(int(estimate * factor * _GIB) for factor in (1, graphs["low"], graphs["high"])))
