"""Features that the core serves, each drawn with whatever it may be combined with: the core and the Python reference
give the same ``summary.json``.
"""

from __future__ import annotations

import contextlib
import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from kvcache_sim.cli.main import run
from support.scenarios import drawn

FEATURES = [
    ("duplicate-waits", "sglang-tree"),
    ("duplicate-waits", "hicache"),
    ("duplicate-waits", "groups"),
    ("duplicate-waits", "group-tier"),
    ("ranks", "copies-lost"),
    ("instant", "vllm-offload"),
    ("instant", "lmcache"),
    ("instant", "hicache"),
    ("instant", "group-tier"),
    ("hicache-storage",),
    ("hicache-storage", "instant"),
    ("pipeline",),
    ("group-drafts",),
]
#: Keys of ``summary.json`` that say how a run was made, not what came of it.
HOW = ("wall", "engine", "plugins")


def reference_of(features: tuple[str, ...]) -> list[str]:
    """Return what has the scheduler in Python serve: over stores in Python too, or over those of the core."""
    return ["--step-every-iteration"] if "hicache-storage" in features else ["--backend", "python"]


def summary(arguments: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any] | None:
    """Return ``summary.json`` of ``kvsim simulate`` in a folder, None where the scenario is refused."""
    monkeypatch.chdir(folder)
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(["simulate", *arguments, "--quiet", "-o", "run", "--force"])
    assert code in (0, 2), f"kvsim simulate {shlex.join(arguments)}: {said.getvalue()[-4000:]}"
    if code == 2:
        return None
    read: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return read


@pytest.mark.parametrize("features", FEATURES, ids=" ".join)
@examples(5)
@given(seed=st.integers(0, 2**32))
def test_the_core_and_python_report_the_same(features, seed, tmp_path_factory):
    scenario = drawn(seed, features)
    assume(set(features) <= set(scenario.present))
    folder = tmp_path_factory.mktemp("features")
    scenario.write(folder)
    with pytest.MonkeyPatch.context() as monkeypatch:
        core = summary(scenario.arguments(), folder, monkeypatch)
        assume(core is not None)  # a combination that is refused
        python = summary([*scenario.arguments(), *reference_of(features)], folder, monkeypatch)
    assert core["engine"]["name"] == "native"
    assert python["engine"]["name"] == "python"
    for key in core.keys() | python.keys():
        if key not in HOW:
            assert core.get(key) == python.get(key), (
                f"{key}: kvsim simulate {shlex.join(scenario.arguments())}"
            )
