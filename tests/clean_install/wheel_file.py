"""Checks of the built files: the wheel's library keeps to its tag, and the sdist holds what a build needs."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

from environment import LOCKS, Failed, the_one

#: Files that the wheel must hold in addition to the code: they are read at run time.
DATA = """
    kvcache_sim/py.typed kvcache_sim/__init__.pyi kvcache_sim/report/assets/page.css
    kvcache_sim/scenario/presets/quickstart.yaml kvcache_sim/model/data/models/llama-3-8b.toml
    kvsim_launcher/__init__.py
""".split()
#: What a build from the sdist cannot do without; ``make wheels`` builds the wheel from it.
SOURCES = ["Cargo.lock", "Cargo.toml", "LICENSE", "README.md", "pyproject.toml", "rust/py/Cargo.toml"]


def check(dist: Path, _python: str) -> str:
    wheel, sdist = the_one(dist, "*.whl"), the_one(dist, "*.tar.gz")
    tagged = re.search(r"manylinux_2_(\d+)_", wheel.name)
    if not tagged:
        raise Failed(f"{wheel.name}: is not tagged manylinux")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        library = opened.read("kvcache_sim/_core.abi3.so")
        bill = b"".join(opened.read(name) for name in names if name.endswith(".cyclonedx.json"))
    if missing := [name for name in DATA if name not in names]:
        raise Failed(f"{wheel.name}: lacks {missing}")
    for name in set(re.findall(r'^name = "(.*)"$', (LOCKS.parent / "Cargo.lock").read_text(), re.M)):
        if f'"name": "{name}"'.encode() not in bill:
            raise Failed(f"{wheel.name}: its list of crates lacks {name}")
    if b'"bomFormat": "CycloneDX"' not in bill or b"file:///rust/py#" not in bill:
        raise Failed(f"{wheel.name}: its list of crates has a folder of the build, or is no CycloneDX")
    needs = max(int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", library))
    if needs > int(tagged[1]):
        raise Failed(f"{wheel.name}: its library needs glibc 2.{needs}")
    with tarfile.open(sdist) as packed:
        held = {name.partition("/")[2] for name in packed.getnames()}
    if missing := [name for name in SOURCES if name not in held]:
        raise Failed(f"{sdist.name}: lacks {missing}")
    return f"{wheel.name}, {wheel.stat().st_size >> 20} MiB, needs glibc 2.{needs}; {sdist.name}"
