"""Property tests of the suite on fresh seeds: the models of engines, caches, channels and replays as oracles.

Property tests draw new examples; tests of a range of seeds get new ones; of recorded rows of engines some are drawn.
"""

import contextlib
import io
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from support import examples

from vopr.finding import Finding

TESTS = Path(__file__).resolve().parents[1]
#: Beginnings of files whose property tests are of commands, texts and inputs, not of what is simulated.
_OTHERS = re.compile(
    "test_(agents|aiperf|border|break_even|capacity|certainty|context|explain|generated|launch|measurement"
    "|models_and_engines|pairs|plain_lines|prompt|report|roofline|scenario[.]|sensitivity|slo|step_times|summary|sweep"
    "|synthetic|terminal|thresholds|timeline|trace_import|vopr|worst|wrong)"
)
#: Tests of stores against small models, which drive hypothesis's state machines.
_MACHINES = (
    "core/test_store_machine.py::test_the_core_store_is_the_plain_store",
    "core/test_store_machine.py::test_it_is_so_where_blocks_are_evicted_in_batches",
    "core/test_store_machine.py::test_it_is_so_in_the_other_orders_of_the_specification",
    "core/test_store_machine.py::test_it_is_so_in_every_order_of_the_table",
    "core/test_store_machine.py::test_it_is_so_where_tiers_have_orders_of_their_own",
    "core/test_store_machine.py::test_it_is_so_without_writing_victims_down",
    "engines/test_store_walks.py::test_a_store_answers_as_it_must",
)
#: Files whose tests compare schedulers and caches of engines with rows of the engines' own classes: all their tests are
#: cases, since few drawn scenarios have a model that judges an engine's decisions.
_RECORDED = re.compile(
    "test_(engine_(streams|tiers)|instant|kv_groups|radix_semantics|(sglang|vllm)_schedule|vllm_groups)[.]"
)
#: The decorators of a test that draws, up to its name: examples of its own, or a range of seeds.
_DRAWN = re.compile(
    r'(?m)^@(?:examples\(|given\(|pytest\.mark\.parametrize\("seed", .*(?:range\(|SEEDS)).*'
    r"(?:\n(?!def|class).*)*?\ndef (test_\w+)\("
)
#: Examples of a test in one case; a quarter of the variants of a parametrized test, but at least and at most so many.
_EXAMPLES, _LEAST, _MOST = 10, 2, 6


class _Collected:
    """A plug-in of pytest that chooses variants of a test and new seeds, and keeps the failures' texts."""

    def __init__(self, seed: int) -> None:
        self.failures: list[str] = []
        self._draw = random.Random(seed)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep some variants of a parametrized test, each with a new seed if it takes one."""
        variants: dict[str, Any] = {}
        for item in items:
            given = getattr(item, "callspec", None)
            named = {} if given is None else {k: v for k, v in given.params.items() if k != "seed"}
            variants.setdefault(repr(named), item)
        count = min(len(variants), max(_LEAST, min(len(variants) // 4, _MOST)))
        items[:] = self._draw.sample(list(variants.values()), count)
        for item in items:
            given = getattr(item, "callspec", None)
            if given is not None and "seed" in given.params:
                given.params["seed"] = self._draw.randrange(1 << 30)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the text of a failure."""
        if report.failed:
            self.failures.append(str(report.longrepr))


@cache
def tests() -> list[str]:
    """Return the tests as ``folder/file::name``, sorted."""
    found = list(_MACHINES)
    for path in sorted(TESTS.glob("*/test_*.py")):
        if _OTHERS.match(path.name):
            continue
        own = re.compile(r"(?m)^def (test_\w+)\(") if _RECORDED.match(path.name) else _DRAWN
        for name in own.findall(path.read_text()):
            found.append(f"{path.relative_to(TESTS)}::{name}")
    return sorted(set(found))


def draw(seed: int) -> tuple[str, int]:
    """Return a test, by the seed's remainder, and the seed of its examples."""
    return tests()[seed % len(tests())], seed


def run(case: tuple[str, int], folder: Path) -> str:
    """Run a few new examples of a property test; hypothesis shrinks a failing one."""
    test, seed = case
    collected, said = _Collected(seed), io.StringIO()
    examples.NEW_EXAMPLES = _EXAMPLES
    examples.register()
    file, _, name = test.partition("::")
    options = "-x -q -p no:cacheprovider -p no:xdist --no-header --tb=short -Wignore".split()
    options += [f"--hypothesis-seed={seed}", f"--basetemp={folder / 'pytest'}", f"--rootdir={TESTS.parent}"]
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = pytest.main([*options, f"{TESTS / file}::{name}"], plugins=[collected])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        raise Finding(test, said.getvalue()[-2000:])
    if collected.failures:
        raise Finding(test, " ".join(collected.failures[0].split())[-600:])
    return "properties"


def smaller(case: tuple[str, int]) -> Iterator[tuple[str, int]]:
    """Yield nothing: hypothesis has shrunk the example."""
    return iter(())


def shown(case: tuple[str, int], folder: Path) -> str:
    """Return the line that runs a test with the same examples."""
    return f"KVSIM_EXAMPLES={_EXAMPLES} KVSIM_SEED={case[1]} python -m pytest -n 0 tests/{case[0]}"
