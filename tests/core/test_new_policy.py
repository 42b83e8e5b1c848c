"""A new eviction policy is one file in Rust, one row and a small reference model; the rest of the code finds
it.

Done in a copy of the tree, whose core is built without optimisation below ``target/new-policy``; the first
build takes a CPU minute, later ones some seconds.
"""

import json
import shutil
from pathlib import Path

import pytest
from support.changed_tree import ChangedTree

NEW = Path(__file__).parents[1] / "data" / "new_policy"
#: Those that pytest finds only where the table has the policy.
TESTS_OF_EVERY_POLICY = (
    "tests/core/test_policy_replays.py::test_every_policy_of_the_table_has_a_file_and_a_model",
    "tests/site/test_policy_pages.py::test_an_eviction_policy_has_its_parts[mru]",
    "tests/site/test_policy_pages.py::test_the_examples_are_worked",
    "tests/core/test_eviction_orders.py::test_leaves_first_equals_the_model[mru]",
    "tests/core/test_eviction_orders.py::test_a_flat_cache_equals_the_model[mru]",
    "tests/core/test_store_machine.py::test_it_is_so_in_every_order_of_the_table[mru-three tiers-1]",
    "tests/core/test_timed_policies.py::test_core_and_specification_agree[mru-tiers0-False]",
    "tests/core/test_timed_policies.py::test_an_instant_run_decides_as_cachesim_does_with_a_block_more[mru]",
)


def add_the_policy(tree: ChangedTree) -> None:
    """Write the policy, its row, its example and its model; ``mod.rs`` names the file as a module and as a policy."""
    shutil.copy(NEW / "mru.rs", tree.path / "rust/core/src/policies/mru.rs")
    tree.insert("rust/core/src/policies/mod.rs", "pub mod object;", "pub mod mru;\n")
    tree.insert("rust/core/src/policies/mod.rs", "    pgdsf::POLICY,", "    mru::POLICY,\n")
    examples = "rust/core/src/policies/worked_examples.rs"
    tree.insert(examples, "    // With equal costs", '    ("mru", 3, "a b c d", "c"),\n')
    tree.insert("python/kvcache_sim/policies/table.py", '    PolicyRow("lfu"', (NEW / "row.txt").read_text())
    models = "tests/core/eviction_orders.py"
    tree.insert(models, "# Least frequently used", (NEW / "model.txt").read_text())
    tree.insert(models, '    "lfu": lambda', '    "mru": lambda variant, capacity: Mru(),\n')


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Sixty prompts that share a head and diverge into five branches in turn."""
    path = tmp_path / "trace.jsonl"
    with path.open("w") as out:
        for i in range(60):
            ids = [0, 1, *range(100 * (i % 5) + 2, 100 * (i % 5) + 2 + i % 7), 1000 + i]
            row = {"timestamp": 40 * i, "input_length": 512 * len(ids), "output_length": 4, "hash_ids": ids}
            out.write(json.dumps(row) + "\n")
    return path


def test_one_file_one_row_and_a_model_are_a_policy(trace, tmp_path):
    tree = ChangedTree("new-policy")
    kvsim, python = tree.kvsim, tree.python
    add_the_policy(tree)
    tree.build()

    # the list, the definition
    listed = [line.split(maxsplit=1) for line in kvsim("policies", "list").splitlines()]
    assert ["mru", "most recently used (Chou and DeWitt, VLDB 1985)"] in listed
    shown = kvsim("policies", "show", "mru")
    assert "from Chou and DeWitt, VLDB 1985" in shown
    assert "By a key of each block: rust/core/src/policies/mru.rs" in shown
    python("docs/site/policy_pages.py")
    assert "A loop a little longer than the cache" in kvsim("policies", "show", "mru")

    # a replay, a curve, and a name that is nearly right
    asked = ["--policy", "mru", "--capacity", "12", "--format", "json"]
    replayed = json.loads(kvsim("cachesim", str(trace), *asked))
    assert replayed["hit_tokens"] != json.loads(kvsim("cachesim", str(trace), *asked[2:]))["hit_tokens"]
    point = json.loads(kvsim("curve", str(trace), *asked))["points"][0]
    assert point["mru"]["hit_tokens"] == replayed["hit_tokens"]
    assert "did you mean mru?" in kvsim("cachesim", str(trace), "--policy", "mruu", *asked[2:], code=2)

    # a tier of a timed run
    tiers = ["--set", "tiers.gpu.capacity=24 blocks", "--set", "tiers.cpu={capacity: 30 blocks, policy: mru}"]
    digests = set()
    for policy in ("mru", "lru"):
        out = str(tmp_path / policy)
        kvsim("simulate", str(trace), "--policy", policy, *tiers, "--output", out)
        digests.add(json.loads((Path(out) / "summary.json").read_text())["digest"]["results"])
    assert len(digests) == 2

    # the tests of every policy are tests of this one
    python("-m", "pytest", "-p", "no:cacheprovider", *TESTS_OF_EVERY_POLICY)
