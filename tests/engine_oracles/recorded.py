"""Results of the engines' own classes on random streams, recorded for clones without the engines' wheels.

``python tests/engine_oracles/recorded.py`` drives the classes of every wheel over the streams of seeds 0, 1,
… and writes ``tests/data/oracles/engine_streams.json.xz``; a stream and its settings are drawn again from the
seed.
"""

from __future__ import annotations

import json
import logging
import lzma
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from kvcache_sim.replay.kv_groups import replay_groups  # noqa: E402
from kvcache_sim.replay.request import REPLAYERS, ReplayRequest  # noqa: E402
from kvcache_sim.workload.trace import Trace  # noqa: E402

from engine_oracles import __main__ as wheels  # noqa: E402  # from the folder above
from engine_oracles import (  # noqa: E402
    lmcache_schedules,
    sglang_plain_schedules,
    sglang_scheduler,
    sglang_schedules,
    sglang_stored_schedules,
    vllm_core,
    vllm_groups,
    vllm_handovers,
    vllm_offload_group_schedules,
    vllm_offload_schedules,
    vllm_pools,
    vllm_simple_schedules,
)

FILE = HERE.parent / "data" / "oracles" / "engine_streams.json.xz"
#: Hexadecimal digits of a digest that a row keeps.
DIGITS = 12
Figures = dict[str, Any]


class Recorded(NamedTuple):
    """Classes of a wheel: how many streams, the request of a seed, this project's figures of it, and
    theirs."""

    wheel: str
    needs: tuple[str, ...]
    streams: int
    request: Callable[[int], Any]
    ours: Callable[[int], Figures]
    theirs: Callable[[Path], Callable[[int], Figures]]


def _of_engine(engine: wheels.Engine, streams: int) -> Recorded:
    def ours(seed: int) -> Figures:
        return REPLAYERS[engine.family](*wheels.asked(engine, seed))

    def theirs(folder: Path) -> Callable[[int], Figures]:
        real = engine.driver.load(folder)
        return lambda seed: engine.driver.run(real, *wheels.asked(engine, seed))  # type: ignore[no-any-return]

    return Recorded(
        engine.wheel, engine.needs, streams, lambda seed: wheels.asked(engine, seed)[0], ours, theirs
    )


def _pool(seed: int) -> tuple[str, ReplayRequest, str]:
    family, request = vllm_pools.asked(seed)
    return family, request, vllm_pools.policy_of(family, seed)


def _pools(folder: Path) -> Callable[[int], Figures]:
    real = vllm_core.load(folder)
    return lambda seed: vllm_pools.theirs(real, *_pool(seed))


def _groups(folder: Path) -> Callable[[int], Figures]:
    real = vllm_core.load(folder)

    def run(seed: int) -> Figures:
        request, settings = vllm_groups.asked(seed)
        return vllm_groups.replayed(real, request, settings)

    return run


def _of_sglang(asked: type[sglang_schedules.Asked], streams: int, wheel: str = "sglang==0.5.23") -> Recorded:
    def theirs(folder: Path) -> Callable[[int], Figures]:
        real = sglang_scheduler.load(folder)

        def run(seed: int) -> Figures:
            engine = sglang_schedules.Engine(real, asked(seed, wheel))
            engine.run()
            return sglang_schedules.digests(engine.figures())

        return run

    def ours(seed: int) -> Figures:
        return sglang_schedules.digests(sglang_schedules.ours(asked(seed, wheel)))

    return Recorded(wheel, ("msgspec",), streams, asked, ours, theirs)


def _offloads(driver: Any, streams: int, load: Callable[[Path], Any] = vllm_core.load) -> Recorded:
    """Return the class of a driver of vLLM's schedulers with a connector, which is vLLM's own."""

    def ours(seed: int) -> Figures:
        return vllm_offload_schedules.digests(driver.ours(driver.Drawn(seed)))

    def theirs(folder: Path) -> Callable[[int], Figures]:
        real = load(folder)

        def run(seed: int) -> Figures:
            engine = driver.Engine(real, driver.Drawn(seed))
            engine.run()
            return vllm_offload_schedules.digests(engine.figures())

        return run

    return Recorded("vllm==0.33.0", (), streams, driver.Drawn, ours, theirs)


CLASSES = {
    "SGLang UnifiedRadixCache": _of_engine(wheels.ENGINES[0], 160),
    "LMCache backends": _of_engine(wheels.ENGINES[1], 80),
    "vLLM pools": Recorded(
        "vllm==0.33.0",
        (),
        160,
        lambda seed: _pool(seed)[1],
        lambda seed: vllm_pools.ours(*_pool(seed)),
        _pools,
    ),
    "vLLM groups": Recorded(
        "vllm==0.33.0",
        (),
        80,
        lambda seed: vllm_groups.asked(seed)[0],
        lambda seed: replay_groups(*vllm_groups.asked(seed)),
        _groups,
    ),
    "SGLang schedules": _of_sglang(sglang_schedules.Asked, 40),
    "SGLang plain schedules": _of_sglang(sglang_plain_schedules.AskedAlone, 32),
    "SGLang stored schedules": _of_sglang(sglang_stored_schedules.AskedOfStorage, 60),
    "SGLang 0.5.22 schedules": _of_sglang(sglang_schedules.Asked, 24, "sglang==0.5.22"),
    "SGLang 0.5.22 stored schedules": _of_sglang(
        sglang_stored_schedules.AskedOfStorage, 24, "sglang==0.5.22"
    ),
    "vLLM offload schedules": _offloads(vllm_offload_schedules, 40),
    "vLLM offload group schedules": _offloads(vllm_offload_group_schedules, 32),
    "LMCache schedules": _offloads(lmcache_schedules, 40, lmcache_schedules.load)._replace(
        wheel="lmcache==0.5.6", needs=("sortedcontainers",)
    ),
    "vLLM hand-overs": _offloads(vllm_handovers, 12),
    "vLLM simple offload schedules": _offloads(vllm_simple_schedules, 12),
}


def drawn(trace: Trace) -> str:
    """Return a digest of a stream: a row is of no use where another is drawn from its seed."""
    arrays = (trace.input_tokens, trace.output_tokens, trace.id_offsets, trace.block_ids)
    return sha256(repr([array.tolist() for array in arrays]).encode()).hexdigest()[:DIGITS]


def short(figures: Figures) -> Figures:
    """Return figures as rows keep them: of digests their first digits."""
    return {
        name: value[:DIGITS] if name.endswith("_sha256") and value is not None else value
        for name, value in figures.items()
    }


def _record(name: str, folder: Path) -> None:
    """Print the rows of a class, one a line; in a process of its own, since its stand-ins are."""
    recorded = CLASSES[name]
    run = recorded.theirs(folder)
    for seed in range(recorded.streams):
        row = {"class": name, "seed": seed, "stream": drawn(recorded.request(seed).trace)}
        print(json.dumps(row | short(run(seed))))


def main() -> int:
    logging.disable(logging.WARNING)
    if len(sys.argv) == 3:
        _record(sys.argv[1], Path(sys.argv[2]))
        return 0
    rows = []
    for name, recorded in CLASSES.items():
        folder = wheels.unpacked(recorded.wheel, recorded.needs)
        if folder is None:
            print(f"{name}: {recorded.wheel} cannot be had from the package index")
            return 1
        reported = [sys.executable, __file__, name, str(folder)]
        rows += subprocess.run(reported, check=True, capture_output=True, text=True).stdout.splitlines()
    text = "[\n" + ",\n".join(rows) + "\n]\n"
    FILE.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(rows)} rows, {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
