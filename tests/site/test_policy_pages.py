"""The pages of eviction policies and routers: each file says what, why, an example and the source of its rule."""

import re
import sys
from pathlib import Path

import pytest
from kvcache_sim.policies.definition import RULES
from kvcache_sim.policies.table import EVICTION_POLICIES, POLICIES
from kvcache_sim.serving.router.registry import ROUTERS

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
import policy_pages  # noqa: E402

ROWS = {row.name: row for row in EVICTION_POLICIES}
#: Policy, capacity, accesses and evicted blocks that `cargo test` replays.
WORKED = re.findall(
    r'\("([\w-]+)", (\d+), "([^"]+)", "([^"]+)"\)',
    (ROOT / "rust/core/src/policies/worked_examples.rs").read_text(),
)


@pytest.mark.parametrize("name", ROWS)
def test_an_eviction_policy_has_its_parts(name):
    parts = policy_pages.policy_parts(ROWS[name])
    assert set(parts) == {"", *policy_pages.PARTS}
    assert all(parts.values())
    assert parts["Source"].startswith(ROWS[name].paper)


def test_the_examples_are_worked():
    given = r"Of (\d+) blocks, `([^`]+)` evicts `([^`]+)`: .+\."
    for name, row in ROWS.items():
        match = re.fullmatch(given, policy_pages.policy_parts(row)["Example"])
        assert match is not None, name
        assert (name, *match.groups()) in WORKED


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_has_its_parts(name):
    parts = policy_pages.router_parts(name)
    assert set(parts) - {"Cost"} == set(policy_pages.PARTS)
    assert all(parts.values())


def test_the_pages_have_every_name():
    page, routers = policy_pages.policies_page(), policy_pages.routers_page()
    assert set(re.findall(r"^## ([\w-]+)$", routers, re.M)) == set(ROUTERS)
    assert set(re.findall(r"^(?:## |\| `)([\w:-]+)", page, re.M)) - {"Engines"} == {
        row.name for row in POLICIES
    }


def test_the_package_carries_what_the_files_say():
    """``python docs/site/policy_pages.py`` writes it."""
    assert RULES.read_text() == policy_pages.rules_text()
