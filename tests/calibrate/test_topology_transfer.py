"""``kvsim calibrate fit --transfer`` over topologies: decode steps of the family, chunk steps of the nearest TP."""

from math import log2

import pytest
from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.extras.calibrate.command import Measured
from kvcache_sim.extras.calibrate.topologies import transferred
from kvcache_sim.extras.calibrate.transfer import Topology
from kvcache_sim.model.catalog import read_toml
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time, step_time_entry
from support.docs_data import read_table

COLUMNS = "tp,ep,dp,prefill_tokens,prefill_requests,decode_requests,decode_kv_tokens,iter_ms"
KNOWN = (Topology(1), Topology(2), Topology(1, 2, 2), Topology(1, 4, 4), Topology(2, 4, 2))


def chunk_ms(topology: Topology, tokens: int) -> float:
    """Up to 512 tokens 10 ms and 1 for each doubling of GPUs; above 30, 10 with ranks, or kernels that TP splits."""
    gpus, ranks = topology.tensor_parallel * topology.data_parallel, topology.data_parallel > 1
    if tokens <= 512:
        return 10 + log2(gpus)
    return max(30.0 + 10 * ranks, 5 + 40 * tokens / 2048 / topology.tensor_parallel)


def lines(topology: Topology) -> list[str]:
    """Decode steps of 2 ms, experts of 4 ms over the GPUs, 0.5 ms a rank; chunk steps of their time."""
    degrees = f"{topology.tensor_parallel},{topology.expert_parallel},{topology.data_parallel}"
    gpus = topology.tensor_parallel * topology.data_parallel
    ms = 2 + 4 / gpus + 0.5 * (topology.data_parallel - 1)
    decode = [f"{degrees},0,0,{n},{n * 100},{ms}" for n in (1, 2, 4, 8, 16, 24, 32) for _ in range(12)]
    sizes = (128, 256, 512, 1024, 2048, 4096)
    return decode + [f"{degrees},{new},1,0,0,{chunk_ms(topology, new)}" for new in sizes for _ in range(8)]


@pytest.fixture
def mixture(tmp_path):
    path = tmp_path / "mixture.csv"
    path.write_text("\n".join([COLUMNS, *(line for topology in KNOWN for line in lines(topology))]) + "\n")
    return path


@pytest.mark.parametrize("wanted", [Topology(4, 4), Topology(4), Topology(2, 8, 4), Topology(1, 8, 8)])
def test_an_unmeasured_topology_has_the_steps_of_the_family(mixture, wanted):
    fitted = transferred(Measured(mixture, {}), wanted)
    assert len(fitted.unseen) == 0
    assert fitted.how.startswith(f"transferred to {wanted.suffix} from tp1, tp1-ep2-dp2")
    gpus, ranks = wanted.tensor_parallel * wanted.data_parallel, wanted.data_parallel
    decode = 2 + 4 / gpus + 0.5 * (ranks - 1)
    assert fitted.model.step(StepBatch((), 8, 800, 100)) / 1e6 == pytest.approx(decode, rel=0.1)
    for new in (256, 1024, 4096):
        chunk = fitted.model.step(StepBatch(((new, 0),))) / 1e6
        assert chunk == pytest.approx(chunk_ms(wanted, new), rel=0.05), new


def test_the_command_holds_out_a_topology_of_the_file(mixture, tmp_path, capsys):
    out = tmp_path / "set.toml"
    asked = ["calibrate", "fit", str(mixture), "--tp", "2", "--ep", "4", "--dp", "2", "--transfer"]
    assert kvsim([*asked, "-o", str(out)]) == 0
    assert "transferred to tp2-ep4-dp2 from tp1, " in capsys.readouterr().err
    table = read_toml(out, "set")
    assert [table[f"{kind}_parallel"] for kind in ("tensor", "expert", "data")] == [2, 4, 2]
    assert table["held_out"]["decode"]["mape_percent"] < 10
    model = load_step_time(str(out))
    assert model.step(StepBatch(((1024, 0),))) / 1e6 == pytest.approx(40, rel=0.05)


def test_a_name_may_be_a_topology_without_a_set():
    """Its steps are those of the family; a measured topology is its set."""
    name = "b300-qwen3.6-35b-a3b:tp4,ep4"
    found, near = load_step_time(name), load_step_time("b300-qwen3.6-35b-a3b-tp4")
    decodes = (8, 8000, 1000)
    for batch in (StepBatch(((1024, 0),)), StepBatch((), *decodes), StepBatch(((7000, 0),), *decodes)):
        assert found.step(batch) == pytest.approx(near.step(batch), rel=0.1)
    entry = step_time_entry(name)
    assert (entry["tensor_parallel"], entry["expert_parallel"], entry["data_parallel"]) == (4, 4, 1)
    with_ranks = step_time_entry("b300-qwen3.6-35b-a3b:tp2,ep8,dp4")
    every = {row[0].strip("`"): row[1:3] for row in read_table("topology-left-out").rows}
    rows = {degrees: row for degrees, row in every.items() if "deepseek" not in degrees}
    for of_name, several in ((entry, False), (with_ranks, True)):
        stated = [row for degrees, row in rows.items() if ("dp" in degrees) is several]
        means = [sum(float(row[at]) for row in stated) / len(stated) for at in (0, 1)]
        held = [of_name["held_out"][phase]["mape_percent"] for phase in ("decode", "mixed")]
        assert held == pytest.approx(means, abs=0.05)
    measured, own = (load_step_time(f"b300-qwen3.6-35b-a3b{end}") for end in (":tp2,ep4,dp2", "-tp2-ep4-dp2"))
    assert measured.step(StepBatch(((1024, 0),))) == own.step(StepBatch(((1024, 0),)))
    for wrong, says in (
        (":tp4,ep3", "not a topology"),
        (":tp16,ep16", "no measured topology of as many GPUs"),
    ):
        with pytest.raises(UsageError, match=says):
            load_step_time(f"b300-qwen3.6-35b-a3b{wrong}")
