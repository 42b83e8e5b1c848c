"""The oldest versions of the dependencies that the metadata allows serve a run and a table of it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from environment import Environment, Failed, the_one

READ = "import kvcache_sim as kv; t = kv.load_run('run').requests; assert t.num_rows == 2000; t.schema"


def check(dist: Path, python: str) -> str:
    wheel = the_one(dist, "*.whl")
    oldest = lowest_versions(wheel)
    with Environment(python, "wheel-lowest.txt") as clean:
        clean.install(str(wheel), *oldest)
        clean.expect("kvsim", "simulate", "-c", "preset:quickstart", "-o", "run", "--quiet")
        clean.expect("kvsim", "explain", "run")
        clean.expect("python", "-c", READ)
    return ", ".join(oldest)


def lowest_versions(wheel: Path) -> list[str]:
    """Return the dependencies without an extra, each at its bound."""
    with zipfile.ZipFile(wheel) as opened:
        (metadata,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        text = opened.read(metadata).decode()
    needed = re.findall(r"^Requires-Dist: ([^;\n]+?)\s*$", text, re.M)
    bounds = [re.fullmatch(r"([\w.-]+)>=([\d.]+)", one) for one in needed]
    if not bounds or None in bounds:
        raise Failed(f"{wheel.name}: a dependency has no lower bound alone: {needed}")
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]
