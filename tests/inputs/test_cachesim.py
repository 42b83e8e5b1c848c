"""``kvsim cachesim``: the oracle rows through the command line, its tables, and what it refuses."""

import csv
import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.replay.request import StorageCapacity
from kvcache_sim.report.cachesim import (
    CapacityOptions,
    cachesim_text,
    capacity_of,
    policies_text,
    requests_csv,
)
from support.exact_rows import OUTPUTS, PROVENANCE, rows_of
from support.shared_files import shared

ROWS = [
    {"id": "a", "n": 17, "out": 3, "ids": [1, 2, 3]},
    {"id": "b", "n": 24, "out": 9, "ids": [1, 2, 4]},
    {"id": "c", "n": 17, "out": 1, "ids": [1, 2, 3]},
    {"id": "d", "n": 40, "out": 1, "ids": [5, 6, 7, 8, 9]},
    {"id": "e", "n": 24, "out": 1, "ids": [1, 2, 4]},
]


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.jsonl"
    rows = [
        {"timestamp": i, "input_length": r["n"], "output_length": r["out"], "hash_ids": r["ids"]}
        for i, r in enumerate(ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(capsys, *argv) -> tuple[int, str, str]:
    code = main.run(["cachesim", *map(str, argv)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def figures(capsys, *argv) -> dict:
    code, out, err = run(capsys, *argv, "--format", "json")
    assert code == 0, err
    return json.loads(out)


def chosen(family: str) -> list[dict]:
    """A row of each policy, window and output mode of a family, small rather than large."""
    first = {}
    for row in rows_of(family):
        kind = tuple(row.get(k) for k in ("policy", "window", "output_mode", "store_threshold", "page_size"))
        if row.get("block_size", 512) == 512:
            first.setdefault(kind, row)
    return list(first.values())


@pytest.mark.parametrize("family", ["vllm", "sglang", "vllm-offload"])
def test_oracle_rows_through_the_command_line(capsys, family):
    trace = shared("traces/conversation_trace.jsonl")
    wrong = []
    for row in chosen(family):
        blocks = (
            row.get("capacity_blocks") or row.get("capacity_chunks") or f"{row['capacity_tokens']} tokens"
        )
        options = {
            "--policy": f"{family}:{row['policy']}" if "policy" in row else family,
            "--capacity": blocks,
            "--block-size": row.get("block_size") or row["page_size"],
            "--window": row.get("window"),
            "--outputs": OUTPUTS.get(row.get("output_mode", "")),
            "--store-threshold": row.get("store_threshold"),
        }
        given = [str(x) for option in options.items() if option[1] is not None for x in option]
        got = figures(capsys, trace, *given)
        wrong += [(row, k) for k, v in row.items() if k not in PROVENANCE and got.get(k) != v]
    assert not wrong


def test_what_a_person_sees(capsys, small):
    code, out, _ = run(capsys, small, "--policy", "vllm", "--capacity", 5, "--trace-block-size", 8)
    assert code == 0
    assert out.startswith("vllm: ")
    assert "at this size (Belady; unbounded " in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert "tokens missed:" in out
    assert "final_free_queue_sha256" in out


@pytest.mark.parametrize("policy", ["lru", "belady"])
def test_what_a_person_sees_of_a_flat_cache(capsys, small, policy):
    ask = (small, "--policy", policy, "--capacity", 5, "--trace-block-size", 8, "--flat")
    code, out, err = run(capsys, *ask)
    assert code == 0, err
    exact = figures(capsys, *ask)
    assert out.startswith(f"{policy}, flat: {100 * exact['hit_ratio']:.1f} % of block accesses hit")
    assert f"\nmisses            {exact['misses']}\n" in out
    assert ("behind a prefix look-up" in out) == (policy != "belady")


def test_a_row_a_request(capsys, small, tmp_path):
    target = tmp_path / "requests.csv"
    ask = (small, "--policy", "vllm", "--capacity", 5, "--trace-block-size", 8, "--requests", target)
    summary = figures(capsys, *ask)
    rows = list(csv.DictReader(target.open()))
    assert len(rows) == len(ROWS)
    for row in rows:
        missed = sum(int(v) for k, v in row.items() if k not in ("request", "input_tokens", "hit_tokens"))
        assert missed == int(row["input_tokens"]) - int(row["hit_tokens"])
    for cause, tokens in summary["misses"].items():
        if cause in rows[0]:
            assert tokens == sum(int(row[cause]) for row in rows)
    code, _, err = run(capsys, *ask)
    assert (code, err.count("\n")) == (6, 1)
    assert run(capsys, *ask, "--force")[0] == 0


def test_causes_by_hand(capsys, small):
    """Five blocks of 8: d takes all of them, so the blocks of a and b are evicted before e."""
    got = figures(capsys, small, "--policy", "vllm", "--capacity", 5, "--trace-block-size", 8)
    # a: 16 never seen + 1 left over; b: hits 2 blocks, 8 left over (the last token's block);
    # c: hits 2, 1 left over; d: 32 never seen + 8 left over; e: 16 evicted + 8 left over
    assert got["hit_tokens"] == 32
    misses = got["misses"]
    assert misses["never_seen_tokens"] == 48
    assert misses["evicted_tokens"] == 16
    assert misses["shorter_tokens"] == 26
    assert misses["diverged_tokens"] == misses["not_admitted_tokens"] == 0
    assert misses["evicted_before_requests"] == {"p50": 1, "p90": 1, "max": 1}


def test_capacity_beyond_any_need_costs_nothing(capsys, small):
    some = figures(capsys, small, "--policy", "vllm", "--capacity", 1000, "--trace-block-size", 8)
    assert some["evictions"] == 0
    assert some["final_free_queue_first5"] == ["-"] * 5
    # a 2, b 1, c 0, d 5 and e 1: the last token of a prompt is computed, so its whole block is stored again
    assert (some["hashed_blocks_inserted"], some["hit_tokens"]) == (9, 48)


@pytest.mark.parametrize("backend", ["python", "native"])
def test_another_backend_is_one_line_that_names_what_there_is(capsys, small, backend):
    code, out, err = run(capsys, small, "--capacity", 9, "--trace-block-size", 8, "--backend", backend)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--backend: removed: the core replays every policy" in err
    assert "kvsim simulate --engine spec" in err


@pytest.mark.parametrize("policy", ["vllm", "sglang:lru", "vllm-offload:arc", "lru"])
def test_sizes_become_blocks(capsys, small, policy):
    ask = (small, "--policy", policy, "--trace-block-size", 8, "--capacity")
    by_size = figures(capsys, *ask, "1MiB", "--kv-bytes-per-token", 16384)
    assert by_size.pop("capacity_bytes") == 1 << 20
    assert by_size == figures(capsys, *ask, "8") == figures(capsys, *ask, "64 tokens")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--capacity", "0"), "no block"),
        (("--capacity", "-3"), "no block"),
        (("--capacity", "16GiB"), "--model"),
        (("--capacity", "1e3"), "not a capacity"),
        (("--capacity", "9" * 23), "not a capacity"),
        (("--capacity", "9", "--policy", "vlm"), "did you mean vllm"),
        (("--capacity", "9", "--policy", "vllm", "--order", "root"), "no effect"),
        (("--capacity", "9", "--policy", "vllm", "--last-partial", "keep"), "no effect"),
        (("--capacity", "9", "--policy", "vllm", "--block-size", "3"), "divisor of 8"),
        (("--capacity", "9", "--policy", "sglang:lru", "--flat"), "no effect"),
        (("--capacity", "9", "--model", "llama-3-8b", "--kv-bytes-per-token", "9"), "a model says its own"),
        (("--capacity", "9", "--store-threshold", "2"), "no effect"),
        (("--capacity", "9", "--force"), "--requests"),
        (("--capacity", "9", "--policy", "vllm", "--window", "-1"), "--window"),
    ],
)
def test_refusals(capsys, small, argv, says):
    code, out, err = run(capsys, small, "--trace-block-size", 8, *argv)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert says in err


FAMILIES = {"lru", "vllm", "sglang", "vllm-offload", "sglang-unified", "lmcache", "lmcache-server"}
LMCACHE, UNIFIED, POOL = {"lmcache", "lmcache-server"}, {"sglang-unified"}, {"vllm"}
#: Option → a value, the families that use it, and the options that it needs.
USED_BY = {
    "capacity": ("9", FAMILIES - LMCACHE, {}),
    "block_size": (4, FAMILIES - LMCACHE, {}),
    "host_capacity": ("9", UNIFIED, {}),
    "write_policy": ("write_back", UNIFIED, {"host_capacity": "9"}),
    "storage": ("unbounded", UNIFIED, {"host_capacity": "9"}),
    "prefetch_threshold": (0, UNIFIED, {"host_capacity": "9", "storage": "9"}),
    "chunk_tokens": (16, LMCACHE | POOL, {"cpu_chunks": 1}),
    "cpu_chunks": (1, LMCACHE | POOL, {}),
    "cpu_policy": ("arc", POOL, {"cpu_chunks": 1}),
    "secondary": (True, POOL, {"cpu_chunks": 1}),
    "disk_chunks": (1, LMCACHE, {"cpu_chunks": 1}),
}


@pytest.mark.parametrize("name", USED_BY)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_option_of_a_capacity_is_of_some_families(family, name):
    value, families, others = USED_BY[name]
    needed = {"cpu_chunks": 1} if family in LMCACHE else {"capacity": "9"}
    flag = {"secondary": "--secondary-tier"}.get(name, f"--{name.replace('_', '-')}")
    if family in families:
        options = CapacityOptions(**{**needed, **others, name: value})
        assert capacity_of(family, family, options, 8, (0, 0)) != capacity_of(
            family,
            family,
            CapacityOptions(
                **{**needed, "cpu_chunks": 2, "capacity": ""} if family in LMCACHE else {"capacity": "8"}
            ),
            8,
            (0, 0),
        )
        return
    with pytest.raises(UsageError, match=f"{flag}: has no effect with --policy {family}"):
        capacity_of(family, family, CapacityOptions(**{**needed, name: value}), 8, (0, 0))


@pytest.mark.parametrize(
    ("family", "options", "weights", "found"),
    [
        ("lru", {"capacity": "9"}, (0, 0), (8, 9)),
        ("lru", {"capacity": "17 tokens", "block_size": 4}, (0, 0), (4, 4)),
        ("lru", {"capacity": "1KiB", "block_size": 4}, (10, 0), (4, 25)),
        ("lru", {"capacity": "1KiB"}, (10, 0), (8, 12)),
        ("vllm", {"capacity": "1KiB"}, (10, 100), (8, 10)),
        ("sglang-unified", {"capacity": "7", "host_capacity": "1KiB"}, (16, 0), (8, 7, 8, "write_through")),
        (
            "sglang-unified",
            {
                "capacity": "7",
                "host_capacity": "80 tokens",
                "write_policy": "write_back",
                "storage": "unbounded",
            },
            (0, 0),
            (8, 7, 10, "write_back", StorageCapacity(None, 256)),
        ),
        (
            "sglang-unified",
            {"capacity": "7", "host_capacity": "9", "storage": "33 tokens", "prefetch_threshold": 1},
            (0, 0),
            (8, 7, 9, "write_through", StorageCapacity(4, 1)),
        ),
        ("vllm", {"capacity": "7", "cpu_chunks": 3}, (0, 0), (8, 7, 3, 1, "lru", False)),
        (
            "vllm",
            {"capacity": "7", "cpu_chunks": 3, "chunk_tokens": 24, "cpu_policy": "arc", "secondary": True},
            (0, 0),
            (8, 7, 9, 3, "arc", True),
        ),
        ("lmcache", {"cpu_chunks": 3}, (0, 0), (256, 3, 0)),
        ("lmcache-server", {"cpu_chunks": 3, "chunk_tokens": 16, "disk_chunks": 5}, (0, 0), (16, 3, 5)),
    ],
)
def test_a_capacity_as_the_options_give_it(family, options, weights, found):
    """Values in the order: tokens a block, blocks, and those of the tiers below."""
    assert tuple(capacity_of(family, family, CapacityOptions(**options), 8, weights).values()) == found


@pytest.mark.parametrize(
    ("family", "options", "line"),
    [
        ("lru", {}, "--capacity: a capacity is missing"),
        ("lru", {"capacity": "17 tokens"}, ""),
        ("lru", {"capacity": "7 tokens"}, "capacity holds no block"),
        ("vllm", {"capacity": "100 tokens"}, "not a capacity"),
        ("lmcache", {}, "--cpu-chunks: chunks of the CPU tier are missing"),
        (
            "vllm",
            {"capacity": "7", "cpu_chunks": 1, "chunk_tokens": 12},
            "--chunk-tokens: a chunk is whole blocks",
        ),
        ("vllm", {"capacity": "7", "chunk_tokens": 8}, "--chunk-tokens: has no effect without --cpu-chunks"),
        ("vllm", {"capacity": "7", "cpu_policy": "lru"}, "--cpu-policy: has no effect without --cpu-chunks"),
        (
            "vllm",
            {"capacity": "7", "secondary": True},
            "--secondary-tier: has no effect without --cpu-chunks",
        ),
        (
            "sglang-unified",
            {"capacity": "7", "write_policy": "write_back"},
            "--write-policy: has no effect without --host",
        ),
        ("sglang-unified", {"capacity": "7", "storage": "9"}, "--storage: has no effect without --host"),
        (
            "sglang-unified",
            {"capacity": "7", "host_capacity": "9", "prefetch_threshold": 1},
            "--prefetch-threshold: has no effect without --storage",
        ),
    ],
)
def test_a_capacity_that_lacks_a_part_is_refused(family, options, line):
    weights = (0, 100) if family == "vllm" and "tokens" in options.get("capacity", "") else (0, 0)
    if not line:
        assert capacity_of(family, family, CapacityOptions(**options), 8, weights)["capacity_blocks"] == 2
        return
    with pytest.raises(UsageError, match=line):
        capacity_of(family, family, CapacityOptions(**options), 8, weights)


CAUSES = {
    f"{name}_tokens": tokens
    for name, tokens in (
        ("never_seen", 600),
        ("evicted", 250),
        ("not_admitted", 0),
        ("diverged", 100),
        ("shorter", 50),
    )
}
PERCENTS = {
    "never seen": "60.0 %",
    "evicted": "25.0 %",
    "not admitted": "0.00 %",
    "diverged": "10.0 %",
    "shorter": "5.00 %",
}


@pytest.mark.parametrize(("bound", "said"), [(0.5, ": 50.0 % of the upper bound"), (None, "")])
def test_a_replays_text_by_hand(bound, said):
    """A sentence, the share of each cause, and the figures that the lines above them do not have."""
    result = {
        "hit_rate": 0.25,
        "hit_blocks": 12345,
        "requests": 9,
        "mean": 0.123456789,
        "mode": "tail",
        "x_sha256": "0123456789abcdef" * 4,
        "capacity_bytes": 1 << 30,
        "not_computed": "causes",
        "upper_bounds": {"belady": {"hit_rate": 0.5}, "unbounded": {"hit_rate": 0.75}},
        "share_of_possible": bound,
        "misses": {
            "missed_tokens": 1000,
            **CAUSES,
            "evicted_before_requests": {"p50": 3, "p90": 1234, "max": 2000},
            "evicted_before_ns": {"p50": 2 * 10**9, "p90": 5 * 10**9, "max": 7 * 10**9},
        },
    }
    text = cachesim_text("lru", result)
    first, causes, figures = text.split("\n\n")
    words = (
        f"lru, 1.0 GiB: 25.0 % of tokens hit, at most 50.0 % at this size (Belady; unbounded 75.0 %){said}"
    )
    assert " ".join(first.split()) == words
    head, *rows = causes.splitlines()
    assert head == "1,000 tokens missed:"
    shown = {row[11:24].strip(): row[:9].strip() for row in rows if "%" in row[:10]}
    assert shown == PERCENTS
    assert " ".join(causes.split()).endswith(
        "evicted before reuse by 3 requests (2 s) at the median, 1,234 requests (5 s) at p90 "
        "a long trace, read row by row: causes"
    )
    values = {"hit_blocks": "12,345", "mean": "0.123", "mode": "tail", "x_sha256": "0123456789abcdef01234567"}
    values |= {"capacity_bytes": "1,073,741,824"}
    assert figures.splitlines() == [f"{name:<16}{value}" for name, value in values.items()]
    one = {**dict.fromkeys(CAUSES, 0), "missed_tokens": 1, "evicted_tokens": 1}
    assert "100.0 %  evicted" in cachesim_text("lru", {"misses": one, "hits": 0})
    none = {**one, "missed_tokens": 0, "evicted_tokens": 0}
    assert cachesim_text("lru", {"misses": none, "hits": 0}).count(" 0.00 %") == 6
    assert cachesim_text("lru", {"hit_rate": 0.5, "hits": 0}) == "lru: 50.0 % of tokens hit\n\nhits  0"


def test_the_text_of_a_plain_cache_and_of_several():
    flat = {"accesses": 8, "hit_ratio": 0.25, "hits": 2, "misses": 6, "evictions": 1234}
    assert cachesim_text("lru", flat).splitlines()[0] == "lru, flat: 25.0 % of block accesses hit"
    behind = {"hit_rate": 0.125, "hit_blocks": 1234, "evictions": 5678}
    both = {**flat, "upper_bounds": {"belady": {"hits": 4}}, "prefix_lookup": behind}
    assert cachesim_text("lru", both).splitlines() == [
        "lru, flat: 25.0 % of block accesses hit, at most 50.0 % at this size (Belady)",
        "behind a prefix look-up: 12.5 % of tokens hit, 1,234 blocks; 5,678 evictions",
        "",
        *("accesses   8", "hit_ratio  0.25", "hits       2", "misses     6", "evictions  1,234"),
    ]
    nothing = {"accesses": 0, "hit_ratio": 0.0, "upper_bounds": {"belady": {"hits": 0}}}
    single = {"accesses": 1, "hit_ratio": 1.0, "upper_bounds": {"belady": {"hits": 1}}}
    assert "at most 100.0 % at" in cachesim_text("lru", single)
    assert "at most 0.00 % at" in cachesim_text("lru", nothing)
    rows = [
        line.split()
        for line in policies_text(["lru", "arc"], [{**flat, "capacity_blocks": 1000}, flat]).splitlines()
    ]
    assert [rows[0], *rows[-2:]] == [
        ["policy", "capacity_blocks", "hit_ratio", "hits", "evictions"],
        ["lru", "1,000", "25.0", "%", "2", "1,234"],
        ["arc", "–", "25.0", "%", "2", "1,234"],
    ]
    assert "hit_ratio" in policies_text(["lru"], [flat])
    with pytest.raises(ValueError, match="shorter"):
        policies_text(["lru", "arc"], [flat])
    tree = {"capacity_blocks": 7, "hit_rate": 0.5, "hit_blocks": 3, "evictions": 0, "not_computed": "causes"}
    text = policies_text(["lru", "arc"], [tree, tree])
    assert text.split("\n\n")[1:] == ["a long trace, read row by row: causes"]
    assert text.splitlines()[-3].split() == ["arc", "7", "50.0", "%", "3", "0"]


def test_requests_as_csv():
    assert requests_csv({"request": [0, 1], "hit_tokens": [5, 7]}) == b"request,hit_tokens\n0,5\n1,7\n"
    with pytest.raises(ValueError, match="shorter"):
        requests_csv({"request": [0, 1], "hit_tokens": [5]})
