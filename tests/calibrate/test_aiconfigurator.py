"""Step times from measured kernels: spellings, refusals in one line, the table against its source, the
cache."""

import json
import re
import socket
from types import SimpleNamespace

import numpy as np
import pytest
from hardware_extra import needs_library
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.aiconfigurator import kernels, library, other_links, source
from kvcache_sim.extras.calibrate.aiconfigurator.deployment import (
    LABEL_REPAIRS,
    REPAIRS,
    Dtypes,
    parse_deployment,
)
from kvcache_sim.extras.calibrate.aiconfigurator.sampled import cache_folder, read_table, table_key
from kvcache_sim.extras.calibrate.aiconfigurator.sampling import _random_steps, breakpoints
from kvcache_sim.extras.calibrate.aiconfigurator.source import aiconfigurator_step_time
from kvcache_sim.model.rank_work import AGREEMENT_MS
from kvcache_sim.model.residual_grid import Residuals
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import MeasuredOn, load_step_time, measured_on, with_absolute_files
from rank_steps import shared_ns

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
    assert (found.tensor_parallel, found.data_parallel, found.expert_parallel, found.split_parts) == (
        2,
        4,
        8,
        1,
    )
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


def test_experts_must_divide_the_gpus():
    with pytest.raises(UsageError, match="ep must divide"):
        _ = parse_deployment("qwen3-30b-a3b@h100:tp2,ep3").split_parts


def test_each_repair_has_a_reason_and_changes_what_it_names():
    for repair in (*REPAIRS, *LABEL_REPAIRS):
        asked = Dtypes(**{repair.field: repair.before[0]})
        assert repair.applies(asked)
        assert getattr(repair.of(asked), repair.field) == repair.after
        assert len(repair.reason) > 20


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
    ],
)
def test_what_the_library_lacks_is_one_line(name, says, monkeypatch):
    def unreachable(*_args, **_kwargs):
        raise AssertionError("the network was asked")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
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
    from kvcache_sim.extras.calibrate.aiconfigurator.kernels import measured_kernels

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


@pytest.mark.parametrize("jumps", [(), (64,), (64, 65, 512)])
def test_bends_are_found_where_a_straight_line_misses(jumps):
    """A fifth more right past each of some counts, which goes to nothing at twice that count."""

    def ms_of(count):
        asked.append(count)
        over = [max(0.0, 1 - (count - jump) / jump) for jump in jumps if count > jump]
        return 10 + count / 50 + 2 * sum(over)

    asked = []
    found = breakpoints(ms_of, (1, 16, 64, 256, 512, 1024))
    assert len(asked) == len(set(asked)) == len(found) <= (21 if not jumps else 120)
    assert list(found) == sorted(found)
    every = np.arange(1, 1025)
    line = np.interp(every, list(found), list(found.values()))
    assert np.abs(line / [ms_of(count) for count in every] - 1).max() < 0.01


@needs_library
@pytest.mark.parametrize("name", ["deepseek-v4-flash@b300:tp4,ep4", "deepseek-v3@h200:tp8"])
def test_a_source_that_falls_is_followed(name):
    """Kernels change at token counts: 5 sequences take longer than 6, 65 tokens than 80, a past may save
    time."""
    from kvcache_sim.extras.calibrate.aiconfigurator.kernels import measured_kernels

    deployment = load_step_time(f"aiconfigurator:{name}")
    table, kernels = deployment.table(16_384, 512), measured_kernels(parse_deployment(name))
    assert (np.diff(table.base_ns[1:]) < -table.base_ns[1] // 100).any()
    v4 = name.startswith("deepseek-v4")
    assert (np.diff(table.decode_base_ns[1:]) < -table.decode_base_ns[1] // 10).any() == v4
    assert (table.past_base_ns[64] < table.base_ns[64] * 9 // 10) == (not v4)
    for new, past in ((64, 0), (65, 0), (80, 0), (513, 0), (64, 4096), (4097, 0)):
        found = table.step(StepBatch(((new, past),))) / 1e6
        assert found == pytest.approx(kernels.step_ms(new, past, 0, 0), rel=0.03), (new, past)
    for n in (1, 4, 5, 8, 16, 17, 128, 129):
        found = table.step(StepBatch((), n, 1024 * n, 1024)) / 1e6
        assert found == pytest.approx(kernels.step_ms(0, 0, n, 1024 * n), rel=0.03), n
    for kv in range(1, 200_000, 997):
        steps = (table.step(StepBatch((), 8, each, each)) for each in (kv, kv + 1))
        assert next(steps) <= next(steps), "more KV never takes less: a stretch's steps do not get shorter"


@needs_library
def test_sparse_attentions_bend_is_followed_and_only_where_lines_miss_it():
    """A sequence's keys are read up to 2,048, then an indexer alone: a line would miss the bend."""
    from kvcache_sim.extras.calibrate.aiconfigurator.kernels import measured_kernels

    name = "deepseek-v3.2@h200:tp8"
    source, kernels = load_step_time(f"aiconfigurator:{name}"), measured_kernels(parse_deployment(name))
    table = source.table(16_384, 512)
    for n, each in ((1, 1024), (1, 2048), (1, 32_768), (64, 2048), (64, 8192), (200, 700)):
        found = table.step(StepBatch((), n, n * each, each)) / 1e6
        assert found == pytest.approx(kernels.step_ms(0, 0, n, n * each), rel=0.02), (n, each)
    rise = [kernels.step_ms(0, 0, 64, 64 * each) for each in (512, 2048, 3584)]
    assert rise[1] - rise[0] > 2 * (rise[2] - rise[1]) > 0, "the bend is in the source"
    assert load_step_time(DENSE).residuals == Residuals() != source.residuals


@needs_library
def test_parallelism_dtypes_reproduction_and_sources_are_said():
    facts = "\n".join(load_step_time(MIXTURE).facts)
    assert "tp 2, pp 1, dp 1, experts ep 1 × tp 2" in facts
    assert "experts w4a16_mxfp4, KV cache bfloat16, attention bfloat16" in facts
    assert "off its source" in facts
    assert "% measured" in facts


@needs_library
def test_a_source_whose_mixed_steps_hardly_read_kv_is_named():
    deepseek = load_step_time("aiconfigurator:deepseek-v3@h200:sglang:tp8")
    assert "KV reads in steps with a chunk cost 1%" in "\n".join(deepseek.facts)
    table = deepseek.table(1024, 64)
    assert table.kv_mixed_fs < table.kv_decode_fs / 50
    assert "beside a chunk costs" not in "\n".join(load_step_time(DENSE).facts)


@needs_library
def test_a_dtype_without_a_table_is_repaired_with_its_reason():
    facts = "\n".join(load_step_time("aiconfigurator:deepseek-v4-flash@b300:tp4,ep4").facts)
    assert "KV cache fp8" in facts
    assert REPAIRS[0].reason in facts


@needs_library
def test_a_kept_table_is_not_sampled_again_and_a_broken_one_is(monkeypatch):
    first = load_step_time(DENSE)
    aiconfigurator_step_time.cache_clear()
    with monkeypatch.context() as without_library:
        without_library.setattr(source, "_made", None)
        assert load_step_time(DENSE) == first
    key = table_key(parse_deployment("qwen3-32b@h100:tp2"))
    path = cache_folder() / f"{key}.json"
    assert json.loads(path.read_text())["facts"] == list(first.facts)
    path.write_text("{")
    assert read_table(key) is None
    aiconfigurator_step_time.cache_clear()
    assert load_step_time(DENSE) == first
    assert not list(cache_folder().glob("*.part"))
    assert table_key(parse_deployment("qwen3-32b@h100:tp4")) != key


@needs_library
def test_it_is_of_our_model_and_gpu_where_we_have_them():
    assert measured_on(DENSE).model == "qwen3-32b"
    assert measured_on(MIXTURE) == MeasuredOn("gpt-oss-120b", "h100", 2)
    other = measured_on("aiconfigurator:Qwen/Qwen3-1.7B@h100").model
    assert other.endswith("Qwen--Qwen3-1.7B_config.json")


@needs_library
def test_a_folder_with_a_configuration_is_a_model(tmp_path):
    configuration = library.configuration_path("Qwen/Qwen3-8B")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_bytes(configuration.read_bytes())
    name = f"aiconfigurator:{tmp_path / 'mine'}@h100"
    assert with_absolute_files(name, lambda text: text) == name
    mine, theirs = load_step_time(name), load_step_time("aiconfigurator:Qwen/Qwen3-8B@h100")
    assert mine.model == theirs.model


@needs_library
def test_a_run_uses_it_as_the_specification_does(tmp_path, capsys):
    digests = []
    for more in ((), ("--engine", "spec")):
        out = tmp_path / str(len(more))
        arguments = ["simulate", "-c", "scenarios/quickstart.yaml", "--set", f"replica.step_time={DENSE}"]
        assert kvsim([*arguments, "-o", str(out), *more]) == 0
        (manifest,) = out.rglob("run.json")
        digests.append(json.loads(manifest.read_text())["digest"]["results"])
    assert digests[0] == digests[1]
    assert "off its source" in capsys.readouterr().err


@needs_library
def test_the_links_of_the_system_itself_change_nothing():
    """The packaged tables are the library's: NVLink of an H100, PCIe 5 of an RTX PRO 6000."""
    for name, links in ((DENSE, "nvlink"), ("aiconfigurator:qwen3-32b@rtx-pro-6000:tp2", "pcie5")):
        own, same = load_step_time(name), load_step_time(name, links)
        for batch in (StepBatch((), 1, 100, 100), StepBatch((), 128, 12800, 100), StepBatch(((2048, 0),))):
            assert same.step(batch) == pytest.approx(own.step(batch), rel=0.002), (name, batch)


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
def test_a_users_own_table_of_links_is_read(tmp_path):
    """One millisecond each, two a layer and one of the embedding; a base never falls, which keeps 0.1 ms."""
    rows = "".join(f"2,{size},1.0\n" for size in (256, 2**20, 2**30))
    (tmp_path / "own.csv").write_text(f"num_gpus,message_bytes,time_ms\n{rows}")
    own, slow = load_step_time(DENSE), load_step_time(DENSE, str(tmp_path / "own.csv"))
    batch = StepBatch((), 32, 32 * 1024, 1024)
    assert (slow.step(batch) - own.step(batch)) / 1e6 == pytest.approx(129 - 0.705, abs=0.15)


@needs_library
def test_ranks_share_experts_and_exchange_by_the_tokens_of_all():
    """The library's ranks have equal loads, and no agreement; its own exchange is NCCL's of the same system."""
    from kvcache_sim.extras.calibrate.aiconfigurator.kernels import measured_kernels

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
@pytest.mark.parametrize(
    ("name", "links", "says"),
    [
        ("aiconfigurator:qwen3-32b@h100", "nvlink", "no effect here"),
        ("aiconfigurator:qwen3-32b@h100:tp1,dp2", "nvlink", "no effect here"),
        ("aiconfigurator:deepseek-v3@h200:sglang:tp8", "nvlink", "inside other figures"),
        ("aiconfigurator:qwen3-32b@rtx-pro-6000:tp2", "nvlink", "no NVLink"),
    ],
)
def test_links_that_cannot_be_changed_are_one_line(name, links, says):
    with pytest.raises(UsageError, match=says):
        load_step_time(name, links)


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


@needs_library
def test_an_unknown_model_is_refused_as_step_times_show_refuses_it(capsys):
    name = "aiconfigurator:qwen3-32x@h100"
    assert kvsim(["step-times", "show", name]) == 2
    shown = capsys.readouterr().err.removeprefix("error: ")
    assert "did you mean Qwen/Qwen3-32B" in shown
    setting = f"replica.step_time={name}"
    assert kvsim(["simulate", "--set", setting, "--set", "workload.kind=conversational"]) == 2
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize(
    ("mixed", "said"), [(2.0, ""), (1.99, "cost 50% of"), (1.0, "cost 25% of"), (9.0, "")]
)
def test_kv_that_costs_less_than_half_in_steps_with_a_chunk_is_said(mixed, said):
    model = SimpleNamespace(kv_mixed_ms_per_thousand=mixed, kv_ms_per_thousand=4.0)
    found = source._cheap_kv(SimpleNamespace(model=model))
    assert (len(found), said in "".join(found)) == (int(said != ""), True)


@pytest.mark.parametrize(
    ("parallel", "shares", "names", "refused"),
    [
        ((1, 1), False, ("m", "h100", 1), "links have no effect here"),
        ((2, 2), False, ("m", "h100", 1), "links have no effect here"),
        ((2, 1), False, (None, "h100", 1), "links need the model's shape and its GPU"),
        ((2, 1), True, ("m", None, 1), "links need the model's shape and its GPU"),
        ((1, 2), True, (None, None, 1), "links need the model's shape and its GPU"),
        ((2, 1), False, ("m", None, 1), "all-reduces are inside other figures"),
    ],
)
def test_links_need_something_to_replace(monkeypatch, parallel, shares, names, refused):
    monkeypatch.setattr(other_links, "deployed_names", lambda text: names)
    monkeypatch.setattr(other_links, "load_model", lambda name: None)
    monkeypatch.setattr(other_links, "_named", lambda links, text: None)
    deployment = SimpleNamespace(tensor_parallel=parallel[0], data_parallel=parallel[1], model="m")
    kernels = SimpleNamespace(deployment=deployment, all_reduces_ms=lambda tokens: np.array([1.0, 0.0]))
    table = SimpleNamespace(model=SimpleNamespace(shared_ranks=1 + shares))
    with pytest.raises(UsageError, match=refused):
        other_links.with_other_links(table, kernels, "text", "nvlink")


@pytest.mark.parametrize("ranks", [1, 3])
def test_a_step_is_asked_of_the_library_once_a_rank(ranks):
    """A chunk of any length is one request; rows have the means of what was asked."""
    asked = []

    def estimate(given):
        asked.append(given)
        return 2.5 + len(asked)

    deployment = SimpleNamespace(data_parallel=ranks, model="m")
    own = kernels.MeasuredKernels(
        SimpleNamespace(estimate_forward_pass_time_ms=estimate), deployment, None, (), 0, False
    )
    rows = own.rows(np.array([[0, 0, 4, 400], [1, 7, 0, 0], [512, 9, 3, 60]]))
    names = ("num_prefill_requests", "sum_prefill_tokens", "sum_prefill_kv_tokens", "num_decode_requests", "sum_decode_kv_tokens")  # fmt: skip
    steps = [(0, 0, 0, 4, 400), (1, 1, 7, 0, 0), (1, 512, 9, 3, 60)]
    assert asked == [
        [{"version": 1, "scheduled_requests": dict(zip(names, step, strict=True))}] * ranks for step in steps
    ]
    columns = (
        rows.prefill_tokens,
        rows.prefill_requests,
        rows.past_tokens,
        rows.decode_sequences,
        rows.decode_kv_tokens,
    )
    assert [tuple(column[n] for column in columns) for n in range(3)] == [
        (0, 0, 0, 4, 400), (1, 1, 7, 0, 0), (512, 1, 9, 3, 60)
    ]  # fmt: skip
    assert rows.iter_ms.tolist() == [3.5, 4.5, 5.5]


def test_operations_and_shares_are_those_of_a_step_by_its_size(monkeypatch):
    """Up to 512 tokens a decode step's, above a prompt's; shares are the mean of both steps."""
    asked = []
    decode = [("gemm", 3.0, 0, "measured"), ("ar_1", 1.0, 0, "guessed")]
    prompt = [("ar_2", 2.0, 0, "measured"), ("ar_3", 6.0, 0, "guessed"), ("gemm", 2.0, 0, "guessed")]
    handle = SimpleNamespace(
        decode_step_per_op=lambda *given: asked.append(given) or decode,
        run_static_per_op=lambda **given: asked.append(given["isl"]) or [prompt],
    )
    monkeypatch.setattr(kernels.MeasuredKernels, "_handle", lambda self: handle)
    own = kernels.MeasuredKernels(None, None, None, (), 0, False)
    assert own.operations_ms((1, 512, 513), re.compile("^ar")).tolist() == [1.0, 1.0, 8.0]
    assert asked == [(1, 128, 2), (512, 128, 2), 513]
    assert own.shares() == pytest.approx({"guessed": (1 / 4 + 8 / 10) / 2, "measured": (3 / 4 + 2 / 10) / 2})
    assert list(own.shares()) == ["guessed", "measured"]


@pytest.mark.parametrize("counts", [(9000, 0, 0), (0, 9000, 0), (0, 0, 9000), (2000, 4000, 6000)])
def test_random_steps_are_decodes_prompts_and_both(counts):
    """Log-uniform: half of the values lie below the geometric middle; half of the prompts have a past."""
    steps = _random_steps("a", counts)
    new, past, n, kv = steps.T
    decodes, prompts, _ = counts
    assert len(steps) == sum(counts)
    assert ((new > 0) == (np.arange(len(steps)) >= decodes)).all()
    assert (
        (n > 0) == ((np.arange(len(steps)) < decodes) | (np.arange(len(steps)) >= decodes + prompts))
    ).all()
    chunk, batch = new > 0, n > 0
    for values, least, most in ((new[chunk], 8, 8192), (n[batch], 1, 256), (past[past > 0], 64, 32_768)):
        if len(values):
            assert values.min() == least
            assert 0.9 * most < values.max() <= most
            assert 0.45 < (values < (least * most) ** 0.5).mean() < 0.55
    assert (past <= 512 * new).all()
    assert not past[~chunk].any()
    if chunk.any():
        assert 0.47 < (past[chunk] > 0).mean() < 0.53
    assert not batch.any() or (kv[batch] // n[batch]).min() == 16
    assert ((kv >= 16 * n) & (kv <= np.minimum(2_000_000, 32_768 * n))).all()
    assert (steps == _random_steps("a", counts)).all()
    assert (steps != _random_steps("b", counts)).any()
