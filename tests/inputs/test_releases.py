"""Tables of releases: values by release and GPU, as the engines' files have them."""

import pytest
from kvcache_sim.base.errors import UsageError
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
    ] == [
        6,
        2,
        6,
        2,
        6,
    ]
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
