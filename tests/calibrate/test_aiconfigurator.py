"""Step times from measured kernels: spellings, refusals in one line, the table against its source, the
cache."""

import json
import socket

import numpy as np
import pytest
from hardware_extra import needs_library
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.aiconfigurator import library
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import Dtypes, parse_deployment
from kvcache_sim.extras.calibrate.aiconfigurator.kernels import measured_kernels
from kvcache_sim.extras.calibrate.aiconfigurator.sampled import cache_folder, table_key
from kvcache_sim.extras.calibrate.aiconfigurator.source import aiconfigurator_step_time
from kvcache_sim.model.rank_work import AGREEMENT_MS
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from rank_steps import shared_ns
from support.flat_steps import row, write_rows

DENSE = "aiconfigurator:qwen3-32b@h100:tp2"
MIXTURE = "aiconfigurator:openai/gpt-oss-120b@h100_sxm:vllm:tp2"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "tables"))
    aiconfigurator_step_time.cache_clear()
    yield
    aiconfigurator_step_time.cache_clear()


def test_a_spelling_names_model_system_engine_degrees_and_dtypes():
    found = parse_deployment("qwen3-30b-a3b@h200:sglang:tp2,dp4,ep8:fp8,kv-fp8")
    assert (found.model, found.system, found.engine) == ("Qwen/Qwen3-30B-A3B", "h200_sxm", "sglang")
    degrees = (found.tensor_parallel, found.data_parallel, found.expert_parallel, found.split_parts)
    assert degrees == (2, 4, 8, 1)
    assert found.dtypes == Dtypes("fp8", "fp8", "fp8", "bfloat16")
    plain = parse_deployment("openai/gpt-oss-120b@h100_sxm")
    assert (plain.engine, plain.dtypes) == ("vllm", Dtypes())
    assert plain.dtypes.kv == "bfloat16", "16 bit unless said, whatever the checkpoint is in"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("qwen3-32b", "not a deployment"),
        ("qwen3-32b@h100:tp0", "not an option: tp0"),
        ("qwen3-32b@h100:vllm:fast", "not an option: fast"),
        ("qwen3-32b@h100:kv-nvfp4", "not an option: kv-nvfp4"),
        ("qwen3-32b@h100:weights-w4afp8", "not an option: weights-w4afp8"),
    ],
)
def test_a_spelling_that_means_nothing_is_refused(text, says):
    with pytest.raises(UsageError, match=says):
        parse_deployment(text)


def test_a_missing_library_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setattr(library, "library_folder", lambda: None)
    with pytest.raises(UsageError) as refusal:
        load_step_time(DENSE)
    assert "\n" not in str(refusal.value)
    assert "pip install 'kvcache-sim[hardware]'" in str(refusal.value.hint)


@needs_library
@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("aiconfigurator:no/such-model@h100", "unknown model"),
        ("aiconfigurator:qwen3-32b@l4", "no kernels of l4 under vllm"),
        ("aiconfigurator:qwen3-32b@nowhere", "no kernels of nowhere"),
        ("aiconfigurator:qwen3-32b@h100:tp2,ep2", "has no experts"),
        ("aiconfigurator:qwen3-32b@h100:weights-nvfp4", "no time for it"),
        ("aiconfigurator:qwen3-30b-a3b@h100:tp2,ep3", "ep must divide"),
    ],
)
def test_what_the_library_lacks_is_one_line(name, says):
    with pytest.raises(UsageError, match=says) as refusal:
        load_step_time(name)
    assert "\n" not in str(refusal.value)


@needs_library
@pytest.mark.parametrize(
    "name",
    [
        DENSE,
        MIXTURE,
        "aiconfigurator:qwen3.6-35b-a3b@b300:tp1,dp2,ep2",
        "aiconfigurator:deepseek-v3@h200:sglang:tp8",
        "aiconfigurator:deepseek-v3@h200:tp8",
        "aiconfigurator:deepseek-v4-flash@b300:tp4,ep4",
        "aiconfigurator:deepseek-v3.2@h200:tp8",
        "aiconfigurator:deepseek-v3.2@h200:sglang:tp8",
        "aiconfigurator:glm-5@b200:sglang:tp8",
    ],
)
def test_the_table_is_within_two_per_cent_of_its_source_off_the_grid(name):
    kernels = measured_kernels(parse_deployment(name.removeprefix("aiconfigurator:")))
    table = load_step_time(name).table(16_384, 512)
    draw = np.random.default_rng(3)
    errors = []
    for _ in range(400):
        n = int(draw.integers(0, 200))
        kv_each = int(np.exp(draw.uniform(4, 10)))
        new = int(np.exp(draw.uniform(3, 9))) if n == 0 or draw.random() < 0.5 else 0
        past = int(draw.integers(0, 8192)) if draw.random() < 0.5 and new >= 64 else 0
        chunks = ((new, past),) if new else ()
        predicted = table.step(StepBatch(chunks, n, n * kv_each, kv_each if n else 0)) / 1e6
        errors.append(abs(predicted / kernels.step_ms(new, past, n, n * kv_each) - 1))
    # ranks that share experts: their shared part is by tokens alone, whatever the step is made of (4.9 % off)
    assert np.mean(errors) <= (0.05 if "dp2" in name else 0.02)


@needs_library
def test_a_kept_table_is_not_sampled_again_and_a_broken_one_is():
    first = load_step_time(DENSE)
    key = table_key(parse_deployment("qwen3-32b@h100:tp2"))
    path = cache_folder() / f"{key}.json"
    kept = json.loads(path.read_text())
    assert kept["facts"] == list(first.facts)
    path.write_text(json.dumps({**kept, "facts": ["as kept"]}))
    aiconfigurator_step_time.cache_clear()
    assert load_step_time(DENSE).facts == ("as kept",)
    path.write_text("{")
    aiconfigurator_step_time.cache_clear()
    assert load_step_time(DENSE) == first
    assert not list(cache_folder().glob("*.part"))
    assert table_key(parse_deployment("qwen3-32b@h100:tp4")) != key


@needs_library
def test_a_run_uses_it_as_the_specification_does(tmp_path, capsys):
    rows = [row(20 * k, 200 + 900 * (k % 3), 10, 100 * (k % 4)) for k in range(12)]
    trace = write_rows(tmp_path, rows)
    settings = [f"trace.path={trace}", "trace.block_size=16", "model=qwen3-32b", f"replica.step_time={DENSE}"]
    asked = ["simulate", *(f"--set={one}" for one in settings), "--set=tiers.gpu.capacity=unbounded"]
    digests = []
    for engine in ("native", "spec"):
        out = tmp_path / engine
        assert kvsim([*asked, "-o", str(out), "--engine", engine]) == 0
        (manifest,) = out.rglob("run.json")
        digests.append(json.loads(manifest.read_text())["digest"]["results"])
    assert digests[0] == digests[1]
    assert "off its source" in capsys.readouterr().err


@needs_library
def test_an_older_engine_over_pcie_takes_its_measured_time_more():
    """128 all-reduces of 1.3 MB: 13.8 ms under vLLM 0.19, 4.7 ms under 0.24, over the same PCIe 5."""
    name = "aiconfigurator:qwen3-32b@rtx-pro-6000:tp2"
    own, older = load_step_time(name), load_step_time(name, "pcie5-vllm-0.19")
    batch = StepBatch((), 128, 128 * 1024, 1024)
    assert (older.step(batch) - own.step(batch)) / 1e6 == pytest.approx(13.8 - 4.7, abs=0.2)
    assert any("pcie5-vllm-0.19 in place of the library's" in fact for fact in older.facts)
    batches = [StepBatch((), n, 1024 * n, 1024) for n in range(1, 200)]
    more_ns = [older.step(batch) - own.step(batch) for batch in batches]
    assert (np.diff(more_ns) > -500).all(), "a larger message takes no less; points have six digits"


@needs_library
def test_ranks_share_experts_and_exchange_by_the_tokens_of_all():
    """The library's ranks have equal loads, and no agreement; its own exchange is NCCL's of the same system."""
    name = "aiconfigurator:qwen3-30b-a3b@rtx-pro-6000:vllm:dp2,ep2"
    kernels = measured_kernels(parse_deployment(name.removeprefix("aiconfigurator:")))
    found, given = load_step_time(name), load_step_time(name, "pcie5")
    table = found.table(4096, 256)
    with kernels.asked() as step_ms:
        for new, n in ((2048, 0), (0, 64)):
            batch = StepBatch(((new, 0),) * (new > 0), n, 1000 * n, 1000)
            assert table.step(batch) / 1e6 - AGREEMENT_MS == pytest.approx(
                step_ms(new, 0, n, 1000 * n), rel=0.03
            )
    assert shared_ns(table.shared, [2048, 16]) < 0.6 * shared_ns(table.shared, [2048, 2048])
    assert any("experts and exchange of 2 ranks by the tokens of all" in fact for fact in found.facts)
    for tokens in ([64, 64], [2048, 2048]):
        assert shared_ns(given.table(4096, 256).shared, tokens) == pytest.approx(
            shared_ns(table.shared, tokens), rel=0.03
        )


@needs_library
@pytest.mark.parametrize("name", ["mixtral-8x7b@h100", "nosuch@h100", "Qwen/Qwen9-1B@h100"])
def test_no_name_server_is_asked(name, tmp_path, monkeypatch):
    """The library packages Mixtral's configuration without listing it, and would download it."""
    asked = []

    def refuse(*where, **_):
        asked.append(where)
        raise OSError("a test without a network")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for target in ("getaddrinfo", "create_connection", "socket"):
        monkeypatch.setattr(socket, target, refuse)
    if name.startswith("mixtral"):
        assert aiconfigurator_step_time(name).step(StepBatch((), 1, 90, 90)) > 0
    else:
        with pytest.raises(UsageError, match="unknown model"):
            aiconfigurator_step_time(name)
    assert not asked
