"""Rows of ``docs/data/sensitivity.toml``: what the deciding assumption of packaged scenarios leaves open.

    python benches/sensitivity_table.py [SCENARIO …]

Prints a row for each scenario and the largest move of a hit rate. ``vllm-rtx4090`` needs ../shared.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path

from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.study.sensitivity.moves import Sensitivity, Values, sensitivity
from kvcache_sim.report.finished import open_runs

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS = ("vllm-rtx4090", "quickstart", "agentic", "pd-disagg", "cpu-offload", "mooncake-pool")
TRACES = {"vllm-rtx4090": ROOT.parent / "shared/traces/sharegpt_llama31_8b_300_b16.jsonl"}
FIGURES = ("TTFT p50", "TTFT p99", "TPOT mean")


def found_for(name: str) -> Sensitivity:
    """Run a packaged scenario and return its sensitivity."""
    with tempfile.TemporaryDirectory() as folder:
        trace = [str(TRACES[name])] if name in TRACES else []
        run = f"{folder}/run"
        with contextlib.redirect_stdout(io.StringIO()):
            code = kvsim(["simulate", *trace, "-c", str(ROOT / f"scenarios/{name}.yaml"), "-o", run, "-q"])
        if code:
            raise SystemExit(f"{name} does not run")
        return sensitivity(open_runs([Path(run)])[0])


def moved(found: Sensitivity, slow: Values, fast: Values, words: str) -> str:
    """Return the change of a figure at both ends, in per cent."""
    low, high = (found.change(values, words) or 0.0 for values in (slow, fast))
    return f"{100 * low:+.1f} … {100 * high:+.1f} %".replace("-", "−")


def main(names: list[str]) -> None:
    """Print the rows of the named scenarios, or of all."""
    most = 0.0
    for name in names or SCENARIOS:
        found = found_for(name)
        decides = found.decisive()
        assert decides is not None
        assert decides.assumption is not None
        assert found.together is not None
        one = decides.assumption
        cells = [f"`{name}`", f"{one.name} {one.interval}"]
        cells += [moved(found, decides.slow, decides.fast, words) for words in FIGURES]
        cells += [moved(found, found.together.slow, found.together.fast, words) for words in FIGURES]
        print(f"  {json.dumps(cells, ensure_ascii=False)},", flush=True)
        most = max(most, *(found.size(move, "hit rate") for move in (*found.moves, found.together)))
    print(f"largest move of a hit rate: {100 * most:.2f} points")


if __name__ == "__main__":
    main(sys.argv[1:])
