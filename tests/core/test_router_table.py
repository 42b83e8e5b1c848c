"""A router is one file and one row: its class declares its inputs, and every setting follows from them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from kvcache_sim.serving.router.registry import ROUTERS, needs_of, readers_of
from kvcache_sim.serving.settings import RouterSettings

WORKLOAD = ("--set", "workload={kind: conversational, requests: 80}", "--set", "cluster.machines=3")


def kvsim(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command line of a kvsim that has a seventeenth router."""
    command = [sys.executable, str(Path(__file__).with_name("seventeenth_router.py")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def simulated(out: Path, *sets: str) -> subprocess.CompletedProcess[str]:
    given = [word for text in sets for word in ("--set", text)]
    return kvsim("simulate", *WORKLOAD, *given, "-o", str(out), "--quiet")


def test_a_made_up_router_serves_and_reads_its_keys(tmp_path: Path):
    done = simulated(
        tmp_path / "a", "router.policy=emptiest", "router.load_threshold=1.5", "router.view.interval=1s"
    )
    assert done.returncode == 0, done.stderr
    requests = json.loads((tmp_path / "a" / "summary.json").read_text())["machines"]["requests"]
    assert sum(requests) == 80
    assert sum(1 for served in requests if served) >= 2


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            ("router.policy=emptiest", "router.overlap_weight=2"),
            "router.policy is not overlap-cost or dynamo-kv",
        ),
        (
            ("router.policy=random", "router.load_threshold=3"),
            "router.policy is not longest-prefix or emptiest",
        ),
        (("router.policy=emptiest", "router.index_blocks=9"), "router.policy emptiest uses no prefixes"),
        (("router.policy=emptiest", "router.index.kind=estimated"), "router.policy is not weighted"),
    ],
)
def test_a_key_that_it_does_not_read_is_refused(settings: tuple[str, ...], line: str, tmp_path: Path):
    done = simulated(tmp_path / "a", *settings)
    assert done.returncode == 2
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_every_router_says_what_it_goes_by():
    assert all("needs" in vars(ROUTERS[name]) or name == "vllm-dp-waiting" for name in ROUTERS)
    assert needs_of("vllm-dp-waiting") == needs_of("vllm-dp")
    read = {key for name in ROUTERS for key in needs_of(name).keys}
    fields = {
        name.removesuffix("_tokens").removesuffix("_ns") for name in RouterSettings.__dataclass_fields__
    }
    assert read <= fields
    assert readers_of("overlap_weight") == ["overlap-cost", "dynamo-kv"]
