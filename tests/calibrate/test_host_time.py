"""The host's time a sequence: on top of any source, in decode and mixed steps; named presets of A100 and H100."""

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.model.hosts import load_host
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from kvcache_sim.simulation import RunOptions
from support.flat_steps import FLAT, moments_ms, row, run, write_rows
from support.product.models import WithSequenceTime
from support.sensitivity_runs import asked

#: Mean ms between tokens of Llama-2-70B on eight GPUs, prompts of 512 and answers of 128 tokens, by batch:
#: means of five runs each in Splitwise's data/perf_model.csv (MIT).
SPLITWISE_MS = {
    "a100": {1: 44.91, 2: 44.53, 4: 45.78, 8: 46.50, 16: 50.44, 32: 53.16, 64: 71.26},
    "h100": {1: 29.70, 2: 30.13, 4: 31.80, 8: 32.43, 16: 34.17, 32: 38.85, 64: 49.99},
}


def test_a_sequence_takes_as_much_more_in_every_kind_of_step():
    base = load_step_time("b300-qwen3-32b-tp2")
    more = WithSequenceTime(base, 250_000)
    for chunks, n in (((), 0), ((), 7), (((512, 0),), 0), (((512, 1024), (3, 0)), 40)):
        batch = StepBatch(chunks, n, 700 * n, 900 * min(n, 1))
        expected = base.step(batch) + 250_000 * n
        assert more.step(batch) == expected
        table = more.table(2048, 128)
        assert table is not None
        assert table.step(batch) == expected


def test_two_sequences_take_twice_the_hosts_time(tmp_path):
    """Two prompts of one step, 10 ms; then nine steps of 10 ms and two times 3 ms of the host."""
    (tmp_path / "flat.toml").write_text(FLAT)
    path = write_rows(tmp_path, [row(0, 16, 10, 0), row(0, 16, 10, 100)])
    settings = (f"replica.step_time={tmp_path / 'flat.toml'}", "replica.step_overhead_per_sequence=3ms")
    for engine in ("native", "spec", "spec-plain"):
        found = moments_ms(run(path, *settings, options=RunOptions(engine=engine)))
        assert found == ([10, 10], [154, 154])


def test_asynchronous_scheduling_hides_it_and_says_so(tmp_path):
    path = write_rows(tmp_path, [row(0, 16, 10, 0)])
    with pytest.raises(UsageError, match="works while a step runs"):
        run(path, "replica.step_overhead_per_sequence=3ms", "replica.async_scheduling=length")


@pytest.mark.parametrize(("gpu", "percent"), [("a100", 6.5), ("h100", 3.1)])
def test_decode_grows_with_the_batch_as_measured_on_eight_gpus(gpu, percent):
    """The roofline alone has 17 ms at one sequence and 22 at 64 on an A100."""
    host = load_host(f"vllm-2023-{gpu}-tp8")
    roofline = load_step_time(f"roofline:llama-2-70b@{gpu}:tp8")
    found = WithSequenceTime(roofline, host.step_overhead_per_sequence_ns)
    for n, measured_ms in SPLITWISE_MS[gpu].items():
        batch = StepBatch((), n, 576 * n, 576)
        ms = (found.step(batch) + host.step_overhead_ns) / 1e6
        assert abs(ms / measured_ms - 1) < percent / 100, n
        assert roofline.step(batch) / 1e6 < 0.5 * measured_ms
    low, high = host.step_overhead_per_sequence_range_ns
    assert low <= host.step_overhead_per_sequence_ns <= high


def test_a_host_brings_it_and_its_interval(tmp_path, capsys):
    rows = [(0, 16, 100, [1]), (0, 16, 100, [2])]
    scenario = (
        "tiers: {gpu: {capacity: unbounded}}\nreplica: {step_time: set.toml, host: vllm-2023-a100-tp8}\n"
    )
    found, printed = asked(tmp_path, capsys, rows, scenario, weights=10.0)
    one = next(one for one in found["assumptions"] if one["name"] == "host time a sequence")
    assert "slopes of the measured batches" in printed
    # A step of two: 10 ms and 0.02 for its tokens, the host's 26.5, and 0.17 to 0.34 a sequence.
    assert one["slow"]["TPOT mean"] == pytest.approx(10.02 + 26.5 + 2 * 0.34, abs=0.003)
    assert one["fast"]["TPOT mean"] == pytest.approx(10.02 + 26.5 + 2 * 0.17, abs=0.003)
