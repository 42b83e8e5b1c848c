"""Tables of releases: values by release and GPU, as the engines' files have them."""

import json

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli import main
from kvcache_sim.model.releases import Subject, engine_releases, engines, parse_release

GIB = 2**30
H100 = Subject("h100", 79 * GIB, model="qwen3-32b", traits=frozenset({"dense", "unquantized"}))


def vllm(version: str, setting: str, subject: Subject = H100) -> object:
    return parse_release(f"vllm@{version}").value(setting, subject)


@pytest.mark.parametrize(
    ("version", "gpu", "gib", "tokens", "seqs"),
    [
        ("0.6.6", "h100", 79, 2048, 256),
        ("0.8.5", "a100", 79, 8192, 1024),
        ("0.9.0", "a100", 79, 2048, 256),
        ("0.33.0", "h100", 79, 8192, 1024),
        ("0.33.0", "l40s", 44, 2048, 256),
        ("0.27.1", "b200", 178, 8192, 1024),
        ("0.28.0", "b200", 178, 16384, 1024),
    ],
)
def test_batch_of_a_server(version: str, gpu: str, gib: int, tokens: int, seqs: int) -> None:
    subject = Subject(gpu, gib * GIB)
    assert vllm(version, "max_num_batched_tokens", subject) == tokens
    assert vllm(version, "max_num_seqs", subject) == seqs


def test_runner_and_its_warmup() -> None:
    assert [vllm(at, "sampler_bytes", H100) for at in ("0.11.0", "0.19.1")] == [38.4, 14]
    second = Subject("h100", 79 * GIB, model="qwen3-32b", traits=H100.traits | {"V2"})
    assert [
        vllm(at, "sampler_bytes", second) for at in ("0.25.1", "0.26.0", "0.27.1", "0.32.0", "0.33.0")
    ] == [6, 2, 6, 2, 6]
    mixture = Subject("h100", 79 * GIB, model="qwen3-30b-a3b")
    assert [vllm(at, "model_runner") for at in ("0.21.0", "0.22.0")] == ["V1", "V2"]
    assert [vllm(at, "model_runner", mixture) for at in ("0.28.0", "0.29.0")] == ["V1", "V2"]


def test_release_that_was_not_read() -> None:
    """The newest below it answers, and the note says which; a release before the table has no answer."""
    between, after = parse_release("vllm@0.26.1"), parse_release("vllm@0.50")
    assert between.note == "vllm@0.26.1: values of vllm 0.26.0"
    assert after.note == "vllm@0.50.0, newer than the table, which ends at 0.33.0: values of vllm 0.33.0"
    assert parse_release("vllm@v0.19.1").note == ""
    with pytest.raises(UsageError, match="older than the table"):
        parse_release("vllm@0.6.5")
    for wrong in ("vllm", "vllm@", "vllm@new", "tgi@1.0", "vllm@0.19.1.2.3"):
        with pytest.raises(UsageError):
            parse_release(wrong)


def test_post_releases_and_candidates_are_ordered() -> None:
    releases = [
        parse_release(f"sglang@{at}").version
        for at in ("0.5.9", "0.5.10rc1", "0.5.10", "0.5.10.post1", "0.5.12")
    ]
    assert releases == sorted(releases)
    assert len(set(releases)) == 5
    assert str(releases[1]) == "0.5.10rc1"
    assert str(releases[3]) == "0.5.10.post1"
    fourth = [parse_release(f"vllm@{at}").version for at in ("0.10.1", "0.10.1.1", "0.10.2")]
    assert fourth == sorted(set(fourth))


@pytest.mark.parametrize("engine", engines())
def test_every_row_has_a_source_and_a_known_release(engine: str) -> None:
    table = engine_releases(engine)
    assert list(table.read) == sorted(table.read)
    assert table.equal in table.read
    for setting in table.settings.values():
        assert setting.rows, setting.name
        for row in setting.rows:
            assert row.release in table.read, (setting.name, row)
            assert row.file, (setting.name, row)
            assert row.mark in ("read", "derived", "believed"), (setting.name, row)


MACHINE = ["--gpu", "h100", "--tp", "2", "--model", "qwen3-32b"]


@pytest.mark.parametrize(
    "line",
    [
        ["diff", "vllm", "0.28", "0.33", "--gpu", "h100"],
        ["diff", "sglang", "0.5.16", "0.5.16.post1"],
        ["show", "lmcache"],
        ["list"],
    ],
    ids=lambda line: "-".join(line[:4]),
)
def test_what_a_person_sees(line, capsys, snapshot):
    """Every line fits 80 columns."""
    assert main.run(["releases", *line]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out == snapshot


def shown(capsys, *line: str) -> dict:
    assert main.run(["releases", *line, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_machine_leaves_one_value_of_each_setting(capsys):
    """Without a machine a value of some GPUs stands with its condition; rows that later ones replace are gone."""
    settings = shown(capsys, "show", "vllm@0.33.0", *MACHINE)["settings"]
    assert {len(setting["values"]) for setting in settings.values()} == {1}
    assert settings["max_num_seqs"]["values"][0]["value"] == 1024
    assert settings["sampler_bytes"]["values"][0]["value"] == 6  # runner V2, which is no option
    open_values = shown(capsys, "show", "vllm@0.33.0")["settings"]["max_num_batched_tokens"]["values"]
    assert {row["condition"]: row["value"] for row in open_values} == {
        "": 2048,
        "from 70 GiB": 8192,
        "a100": 2048,
        "from 160 GiB": 16384,
        "gb10": 2048,
    }


def test_a_difference_is_the_same_in_either_order_and_names_the_release(capsys):
    """The batch of a server moved at 0.28 on GPUs of 160 GiB and stayed on an H100."""
    large = shown(capsys, "diff", "vllm", "0.33.0", "0.26.0", "--gpu", "b200")
    assert large == shown(capsys, "diff", "vllm", "0.26.0", "0.33.0", "--gpu", "b200")
    steps = large["changed"]["max_num_batched_tokens"]["steps"]
    assert [(step["release"], step["values"][0]["value"]) for step in steps] == [
        ("0.26.0", 8192),
        ("0.28.0", 16384),
    ]
    assert "replica.max_num_batched_tokens" in large["moves"]
    small = shown(capsys, "diff", "vllm", "0.26.0", "0.33.0", "--gpu", "h100")
    assert "max_num_batched_tokens" in small["unchanged"]


def test_states_are_cached_from_the_release_that_left_the_option_out(capsys):
    """vllm/engine/arg_utils.py: opt-in for hybrid models up to 0.27, by default from 0.28."""
    hybrid = shown(capsys, "diff", "vllm", "0.25.1", "0.28.0", "--model", "qwen3-next-80b-a3b")
    steps = hybrid["changed"]["enable_prefix_caching"]["steps"]
    assert [(step["release"], step["values"][0]["value"]) for step in steps] == [
        ("0.25.1", False),
        ("0.28.0", True),
    ]


@pytest.mark.parametrize(
    "line",
    [["show", "tgi"], ["show", "vllm@new"], ["diff", "vllm", "0.1", "0.33"], ["show", "vllm", "--gpu", "h1"]],
)
def test_a_wrong_release_is_one_line(line, capsys):
    assert main.run(["releases", *line]) == 2
    assert capsys.readouterr().err.count("\n") == 1
