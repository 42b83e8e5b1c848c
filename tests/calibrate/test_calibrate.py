"""``kvsim calibrate`` through real files: measurements become a set, a set is checked, a run meets a log."""

import json

import pytest
from kvcache_sim.cli.main import run
from kvcache_sim.extras.calibrate.fit import predict_ms
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time
from support.product.models import measured_on
from support.timed_rows import TRUE, random_rows

COLUMNS = "tp,prefill_tokens,prefill_requests,prefill_past_kv_tokens,decode_requests,decode_kv_tokens,iter_ms"


@pytest.fixture(scope="module")
def iterations(tmp_path_factory):
    """Rows of three TP degrees, each twice as fast as the one before."""
    path, lines, rows = tmp_path_factory.mktemp("rows") / "rows.csv", [COLUMNS], random_rows(600)
    predicted = predict_ms(TRUE, rows)
    values = (rows.prefill_tokens, rows.prefill_requests, rows.past_tokens, rows.decode_sequences)
    for degree in (1, 2, 4):
        for i in range(len(rows)):
            cells = [f"{column[i]:g}" for column in (*values, rows.decode_kv_tokens)]
            lines.append(",".join([str(degree), *cells, f"{predicted[i] / degree:.4f}"]))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def fitted(iterations, tmp_path_factory):
    out = tmp_path_factory.mktemp("fitted") / "m.toml"
    assert run(["calibrate", "fit", str(iterations), "--tp", "1", "-o", str(out)]) == 0
    return out


def errors_of(printed: str) -> dict[str, list[float]]:
    """MAPE, p95 and bias in % by phase, as printed."""
    head, *lines = printed.splitlines()
    assert head.split() == ["phase", "rows", "MAPE", "%", "p95", "%", "bias", "%"]
    return {line.split()[0]: [float(cell) for cell in line.split()[2:]] for line in lines}


def test_a_fit_is_written_and_drawn_and_its_error_printed(iterations, tmp_path, capsys):
    out, picture = tmp_path / "m.toml", tmp_path / "m.svg"
    asked = ["calibrate", "fit", str(iterations), "--tp", "1", "-o", str(out), "--picture", str(picture)]
    assert run([*asked, "--model", "llama-3-8b"]) == 0
    found = errors_of(capsys.readouterr().out)
    assert set(found) == {"decode", "mixed", "prefill"}
    assert all(mape < 2 for mape, *_ in found.values())
    assert load_step_time(str(out)).table(8192, 256) is not None
    assert (measured_on(str(out)).model, measured_on(str(out)).gpu) == ("llama-3-8b", None)
    assert "<svg" in picture.read_text()


def test_a_degree_is_predicted_from_the_others(iterations, tmp_path, capsys):
    out = tmp_path / "m.toml"
    assert run(["calibrate", "fit", str(iterations), "--tp", "2", "--transfer", "-o", str(out)]) == 0
    assert errors_of(capsys.readouterr().out)["decode"][0] < 10


def test_check_judges_an_existing_set(iterations, fitted, capsys):
    assert run(["calibrate", "check", str(iterations), str(fitted), "--tp", "2"]) == 0
    bias = errors_of(capsys.readouterr().out)["decode"][2]
    assert bias == pytest.approx(100, abs=5), "twice as slow as TP 2"


def test_a_check_as_printed(tmp_path, capsys, snapshot):
    """A set of 10 ms a step, against steps that took 8 to 16."""
    (tmp_path / "set.toml").write_text(
        "[coefficients]\nweights_ms = 10.0\ntoken_ms = 0.0\nexponent = 1.0\ngraph_tokens = 0\n"
    )
    lines = [f"1,0,0,0,{n},{100 * n},{8 + n}" for n in range(1, 9)]
    lines += [f"1,{new},1,0,{n},{100 * n},{ms}" for new, n, ms in ((64, 0, 10), (64, 0, 12.5), (64, 4, 8))]
    (tmp_path / "rows.csv").write_text("\n".join([COLUMNS, *lines]) + "\n")
    assert run(["calibrate", "check", str(tmp_path / "rows.csv"), str(tmp_path / "set.toml")]) == 0
    assert capsys.readouterr().out == snapshot


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "choose one with --tp"),
        ("--tp 3", "no rows of TP degree 3"),
        ("--transfer", "needs the degree"),
        ("--onto roofline:qwen3-32b@b300", "--base"),
        ("--tp 2 --ep 5 --dp 2", "--ep beyond tp × dp"),
        ("--only tp", "COLUMN=VALUE"),
        ("--only tp=9", "no iterations"),
        ("--only colour=red", "no column colour"),
    ],
)
def test_what_cannot_be_fitted_is_refused(iterations, tmp_path, capsys, options, says):
    out = tmp_path / "m.toml"
    assert run(["calibrate", "fit", str(iterations), "-o", str(out), *options.split()]) in (2, 3)
    assert says in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        ("attention,1,a,g", "--gpu h100", "kernel times need --model and --gpu"),
        ("attention,1,a,g", "--model llama-3-8b", "kernel times need --model and --gpu"),
        ("attention,1,a,g attention,2,a,g", "--model llama-3-8b --gpu h100", "kernels of several TP degrees"),
        ("attention,1,a,g attention,1,b,g", "", "got a, b; choose one with --only model="),
        ("attention,1,a,g attention,1,a,h", "", "got g, h; choose one with --only gpu="),
        ("attention,1,a,g", "--model llama-3-8b --gpu h100", "no column op"),
        (",1,a,g", "--dp 2", "ranks and unequal lengths are composed of kernels"),
    ],
)
def test_kernels_of_one_deployment_alone_are_composed(tmp_path, capsys, rows, options, said):
    path = tmp_path / "kernels.csv"
    path.write_text("\n".join(["kind,tp,model,gpu", *rows.split(" ")]) + "\n")
    asked = ["calibrate", "fit", str(path), "-o", str(tmp_path / "m.toml")]
    assert run([*asked, *options.split()]) in (2, 3)
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(("name", "line"), [("decode", "{ms},0,{n},{kv}"), ("prefill", "{ms},{kv},0,0")])
def test_one_phase_alone_is_fitted_and_the_same_rows_give_the_same_file(tmp_path, capsys, name, line):
    body = "".join(line.format(ms=10 + n / 4, n=n, kv=90 * n) + "\n" for n in range(1, 41))
    (tmp_path / "rows.csv").write_text("iter_ms,prefill_tokens,decode_requests,decode_kv_tokens\n" + body)
    made = []
    for out in (tmp_path / "1.toml", tmp_path / "2.toml"):
        assert run(["calibrate", "fit", str(tmp_path / "rows.csv"), "-o", str(out)]) == 0
        assert list(errors_of(capsys.readouterr().out)) == [name]
        made.append(out.read_bytes())
    assert made[0] == made[1]
    table = load_step_time(str(out)).table(64, 64)
    assert table.step(StepBatch((), 1, 90, 90)) > 0


SCENARIO = """
trace: {path: trace.jsonl, block_size: 16}
model: llama-3.1-8b
tiers: {gpu: {capacity: unbounded}}
replica: {step_time: "linear:base=10ms"}
"""
#: The same requests as a client logged them: arrival, TTFT and latency in ns; one of another number.
LOG = """request id,input,output,latency,TTFT,arrival
0,64,3,40000000,20000000,0
1,64,3,60000000,20000000,1000000000
7,64,2,60000000,20000000,2000000000
"""


def test_a_run_meets_a_log_as_printed(tmp_path, capsys, snapshot):
    """Four requests of 10 ms a step; the log has three, of which the run has two, at half the speed."""
    rows = [{"timestamp": 1000 * k, "input_length": 64, "output_length": 3} for k in range(4)]
    rows = [row | {"hash_ids": list(range(4 * k, 4 * k + 4))} for k, row in enumerate(rows)]
    (tmp_path / "trace.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "s.yaml").write_text(SCENARIO)
    (tmp_path / "log.csv").write_text(LOG)
    assert run(["simulate", "-c", str(tmp_path / "s.yaml"), "-o", str(tmp_path / "run"), "-q"]) == 0
    capsys.readouterr()
    asked = ["calibrate", "compare", str(tmp_path / "run"), str(tmp_path / "log.csv")]
    assert run(asked) == 0
    shown = capsys.readouterr()
    assert shown.out + shown.err.replace(str(tmp_path), "") == snapshot
    assert run([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["paired_by"], found["paired_requests"]) == ("request id", 2)
    assert found["latencies"][0]["error_percent"] == pytest.approx(-50)
