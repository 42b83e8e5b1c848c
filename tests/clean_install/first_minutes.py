"""The first ten minutes with the wheel alone: install, run, explain, Python, pictures, report."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from environment import Environment, Failed, the_one

#: Where the wheel's tests may not look: this checkout.
CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = """
import sys
import kvcache_sim as kv
run = kv.simulate({"kind": "conversational", "requests": 200}, tiers={"gpu": "256 blocks", "cpu": "8GiB"})
assert run.summary["requests"]["finished"] == 200
assert run.requests.num_rows == 200
assert not [path for path in sys.path if path.startswith(sys.argv[1])], sys.path
"""
VERSIONS = "import platform, numpy; print(platform.python_version(), numpy.__version__)"


def check(dist: Path, python: str) -> str:
    with Environment(python, "wheel.txt") as clean:
        clean.install(str(the_one(dist, "*.whl")))
        version = clean.expect("kvsim", "--version").strip()
        printed = clean.expect("kvsim", "simulate", "-c", "preset:quickstart", "-o", "run", "--quiet")
        next_step = re.search(r"^next: (kvsim .*?)(?:   # pictures: (.*))?$", printed, re.M)
        if not next_step or not next_step[2]:
            raise Failed("kvsim simulate: names no next step and how to get pictures")
        clean.expect(*shlex.split(next_step[1]))
        clean.expect("python", "-c", SCRIPT, str(CHECKOUT))
        clean.expect("kvsim", "report", "run", code=2, stderr=next_step[2])
        clean.expect(*shlex.split(next_step[2]))
        clean.expect("kvsim", "plot", "run", "hit-curve", "-o", "curve.svg")
        clean.expect("kvsim", "report", "run", "-o", "report.html")
        for name, begins in (("curve.svg", "<svg"), ("report.html", "<!doctype html")):
            if not (clean.work / name).read_text(encoding="utf-8").lower().startswith(begins):
                raise Failed(f"{name}: does not begin with {begins}")
        clean.expect("kvsim", "init", "--preset", "quickstart")
        which, numpy = clean.expect("python", "-c", VERSIONS).split()
        return (
            f"{version} on Python {which}, numpy {numpy}, without Rust: run, explain, Python, plot and report"
        )
