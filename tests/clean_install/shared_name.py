"""The PyPI package ``kvcache-simulator`` installed with the wheel: both orders, and its removal by pip.

It installs the import name ``kvcache_sim`` too. After it, in either order, each verb says so in one line with
a remedy, and the remedy typed as it stands gives a command that works.
"""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from pathlib import Path

from environment import Environment, Failed, the_one

OTHER = "kvcache-simulator"
GONE, TAKEN, SHARED = "is gone, as after removing", "is another project's", "shares files with kvsim"


def check(dist: Path, python: str) -> str:
    wheel = str(the_one(dist, "*.whl"))
    with Environment(python, "wheel.txt") as clean:
        if clean.fetch("shared-name.txt", "other").returncode:
            return f"SKIPPED: {OTHER} cannot be had from the package index"
        other = str(the_one(clean.work / "other", "*.whl"))
        clean.install(wheel)
        verbs = clean_verbs(clean)
        clean.install("--no-deps", other)
        all_verbs_say(clean, verbs, TAKEN)
        follow_remedy(clean)
        clean.install("--no-deps", "--force-reinstall", other)
        clean.expect("pip", "uninstall", "-y", "--quiet", OTHER)
        all_verbs_say(clean, verbs, GONE)
        follow_remedy(clean)
        clean.expect("pip", "uninstall", "-y", "--quiet", "kvcache-sim")
        clean.install("--no-deps", other)
        clean.install("--no-deps", wheel)
        all_verbs_say(clean, verbs, SHARED)
        clean.expect("kvsim", "simulate", "-c", "preset:quickstart", "-o", "beside", "--quiet", stderr=SHARED)
        clean.expect("pip", "uninstall", "-y", "--quiet", OTHER)
        all_verbs_say(clean, verbs, GONE)
        follow_remedy(clean)
    return f"{Path(other).name}: {len(verbs)} verbs in both orders, after its removal, after each remedy"


def clean_verbs(clean: Environment) -> list[str]:
    """Return the verbs of the installed command, and its two options."""
    printed = clean.expect("python", "-c", "from kvcache_sim.cli import VERBS; print(list(VERBS))")
    return [*ast.literal_eval(printed), "--help", "--version"]


def remarks(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if OTHER in line]


def all_verbs_say(clean: Environment, verbs: list[str], words: str) -> None:
    """Each verb says it in one line; alone and with nothing run where the files are not ours."""
    for verb in verbs:
        done = clean.run("kvsim", verb, *([] if verb.startswith("--") else ["--help"]))
        said = remarks(done)
        alone = words == SHARED or (
            done.returncode == 7 and not done.stdout and len(done.stderr.splitlines()) == 1
        )
        if len(said) != 1 or words not in said[0] or "pip install" not in said[0] or not alone:
            raise Failed(
                f"kvsim {verb}: one line with {words!r} expected; got {done.returncode} {done.stderr!r}"
            )


def follow_remedy(clean: Environment) -> None:
    """Type what the line says, as it stands; afterwards the command works and says nothing."""
    (line,) = remarks(clean.run("kvsim", "--version"))
    for command in re.findall(r"pip (?:un)?install [^;]+", line):
        clean.expect(*shlex.split(command))
    done = clean.run("kvsim", "simulate", "-c", "preset:quickstart", "-o", "run", "--quiet", "--force")
    if done.returncode or remarks(done):
        raise Failed(f"after {line!r}: kvsim simulate ends with {done.returncode} {done.stderr!r}")
