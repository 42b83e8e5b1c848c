"""``make oracles``: engines' own classes, from their wheels, against this project's on fresh streams.

Prints what was stood in for and how many streams were equal; ``KVSIM_EXAMPLES`` says how many, ``KVSIM_SEED``
from which on, ``KVSIM_RELEASE`` (``vllm==0.30.0``) which other release of an engine, alone. An engine whose wheel
cannot be had is skipped with one line; a stream that differs fails.
"""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kvcache_sim.replay.engine_tiers import WRITE_POLICIES  # noqa: E402
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest, StorageCapacity  # noqa: E402

from engine_oracles import lmcache_tiers, sglang_tree  # noqa: E402  # from the folder above
from engine_oracles.streams import compare_streams, stream, unequal  # noqa: E402

#: Where wheels are kept and unpacked.
WHEELS = HERE.parents[1] / "target" / "oracles"
STRATEGIES = ("lru", "lfu", "fifo", "mru", "filo", "slru", "priority", "tlru", "tlru:128:32")


class Program(NamedTuple):
    """A driver that runs in a process of its own, since its stand-ins are its own, and the wheel that it
    drives."""

    name: str
    wheel: str
    needs: tuple[str, ...]
    script: str


class Engine(NamedTuple):
    """A wheel, the small packages that its classes need, and the program that drives it."""

    name: str
    wheel: str
    needs: tuple[str, ...]
    driver: Any
    family: str


ENGINES = (
    Engine("SGLang UnifiedRadixCache", "sglang==0.5.23", ("msgspec",), sglang_tree, "sglang-unified"),
    Engine("LMCache backends", "lmcache==0.5.6", ("sortedcontainers",), lmcache_tiers, "lmcache"),
)

PROGRAMS = (
    Program("vLLM scheduler settings", "vllm==0.33.0", (), "scheduler_fields.py"),
    Program("SGLang scheduler settings", "sglang==0.5.23", ("msgspec",), "scheduler_fields.py"),
    Program("LMCache chunks", "lmcache==0.5.6", ("sortedcontainers",), "lmcache_chunks.py"),
    Program("LMCache server", "lmcache==0.5.7rc2", (), "lmcache_server.py"),
    Program("LMCache schedules", "lmcache==0.5.6", ("sortedcontainers",), "lmcache_schedules.py"),
    Program("SGLang RadixCache", "sglang==0.5.23", ("msgspec",), "sglang_classic.py"),
    Program("SGLang passes", "sglang==0.5.23", ("msgspec",), "sglang_passes.py"),
    Program("SGLang schedules", "sglang==0.5.23", ("msgspec",), "sglang_schedules.py"),
    Program("SGLang plain schedules", "sglang==0.5.23", ("msgspec",), "sglang_plain_schedules.py"),
    Program("SGLang stored schedules", "sglang==0.5.23", ("msgspec",), "sglang_stored_schedules.py"),
    Program("vLLM pools", "vllm==0.33.0", (), "vllm_pools.py"),
    Program("vLLM groups", "vllm==0.33.0", (), "vllm_groups.py"),
    Program("vLLM schedules", "vllm==0.33.0", (), "vllm_schedules.py"),
    Program("vLLM offload schedules", "vllm==0.33.0", (), "vllm_offload_schedules.py"),
    Program("vLLM offload group schedules", "vllm==0.33.0", (), "vllm_offload_group_schedules.py"),
    Program("vLLM simple offload schedules", "vllm==0.33.0", (), "vllm_simple_schedules.py"),
    Program("vLLM hand-overs", "vllm==0.33.0", (), "vllm_handovers.py"),
    Program("vLLM group schedules", "vllm==0.33.0", (), "vllm_group_schedules.py"),
    Program("vLLM connector", "vllm==0.33.0", (), "vllm_connector.py"),
)


def asked(engine: Engine, seed: int) -> tuple[ReplayRequest, str]:
    """Return the stream of a seed, with a capacity that is at times barely sufficient, and a policy."""
    draw = random.Random(seed)
    trace = stream(draw)
    if engine.family == "lmcache":
        longest = int(trace.input_tokens.max()) // 16
        chunks = longest + 1 + draw.randint(0, 2 * longest)
        disk = draw.choice([0, chunks // 2 + 1, chunks + 5, 2 * chunks, 3 * chunks])
        return ReplayRequest(trace, 16, chunks, disk_blocks=disk), draw.choice(["lru", "lfu", "fifo", "mru"])
    page = draw.choice([1, 4, 16])
    longest = int((trace.input_tokens + trace.output_tokens).max())
    pages = (longest + draw.randint(1, 3) * page + draw.randint(0, 2 * longest)) // page + 1
    write_policy = draw.choice(["", *WRITE_POLICIES, "write_back"])
    host = max(1, int(pages * draw.choice([0.1, 0.2, 0.6, 1, 2, 3]))) if write_policy else 0
    storage = None
    if write_policy and draw.random() < 0.6:
        capacity = draw.choice([None, None, host * 2, pages * 3])
        storage = StorageCapacity(capacity, draw.choice([1, 16, 64, 256]))
    request = ReplayRequest(
        trace,
        page,
        pages,
        window=draw.choice([0, 4]),
        outputs="computed",
        host_blocks=host,
        write_policy=write_policy,
        storage=storage,
    )
    return request, draw.choice(STRATEGIES)


def of_release(driven: Any) -> Any:
    """Return an engine or program with the release that ``KVSIM_RELEASE`` names, None for another engine's."""
    release = os.environ.get("KVSIM_RELEASE") or driven.wheel
    is_its = release.partition("==")[0] == driven.wheel.partition("==")[0]
    return driven._replace(wheel=release) if is_its else None


def pip(*arguments: str) -> bool:
    """Run pip quietly; return True on success."""
    reported = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(reported, capture_output=True).returncode == 0


def unpacked(wheel: str, needs: tuple[str, ...]) -> Path | None:
    """Return the folder of an engine's wheel, fetched where it is not there; None where it cannot be had."""
    folder = WHEELS / wheel
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        if not pip("download", "--no-deps", "--only-binary=:all:", "-d", str(folder), wheel):
            return None
        if needs and not pip("install", "--no-deps", "--target", str(folder), *needs):
            return None
        for file in folder.glob("*.whl"):
            with zipfile.ZipFile(file) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])
            file.unlink()
        (folder / "complete").touch()
    return folder


def compare(engine: Engine, streams: int, first: int) -> bool:
    """Drive an engine over fresh streams; print and return whether all are equal."""
    folder = unpacked(engine.wheel, engine.needs)
    if folder is None:
        print(f"{engine.name}: skipped, {engine.wheel} cannot be had from the package index")
        return True

    def differs(real: Any, seed: int) -> str | None:
        request, policy = asked(engine, seed)
        return unequal(
            REPLAYERS[engine.family](request, policy), engine.driver.run(real, request, policy), policy
        )

    return not compare_streams(engine.name, engine.driver.load, differs, folder, streams, first)


def run(program: Program, streams: int, first: int) -> bool:
    """Let a program drive its engine over fresh streams, and print; return whether all are equal."""
    folder = unpacked(program.wheel, program.needs)
    if folder is None:
        print(f"{program.name}: skipped, {program.wheel} cannot be had from the package index")
        return True
    reported = [sys.executable, str(HERE / program.script), str(folder), str(streams), str(first)]
    return subprocess.run(reported).returncode == 0


def main() -> int:
    logging.disable(logging.WARNING)
    streams = int(os.environ.get("KVSIM_EXAMPLES", "0")) or 300
    first = int(os.environ.get("KVSIM_SEED", "0"))
    equal = [compare(engine, streams, first) for engine in map(of_release, ENGINES) if engine]
    equal += [run(program, streams, first) for program in map(of_release, PROGRAMS) if program]
    return 0 if all(equal) else 1


if __name__ == "__main__":
    sys.exit(main())
