"""``kvsim calibrate fit --transfer`` over topologies: decode steps of the family, chunk steps of the nearest TP."""

import pytest
from docs_data import read_table
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.errors import UsageError
from kvcache_sim.model.calibration.command import Measured
from kvcache_sim.model.calibration.rows import phase_errors
from kvcache_sim.model.calibration.topologies import measured_topologies, transferred
from kvcache_sim.model.calibration.transfer import Topology
from kvcache_sim.model.catalog import read_toml
from kvcache_sim.model.step_time import StepBatch
from kvcache_sim.model.step_times import load_step_time, step_time_entry
from shared_files import shared

COLUMNS = "tp,ep,dp,prefill_tokens,prefill_requests,decode_requests,decode_kv_tokens,iter_ms"
KNOWN = (Topology(1), Topology(2), Topology(1, 2, 2), Topology(1, 4, 4), Topology(2, 4, 2))
CHUNK_MS = {topology: 10.0 + 5 * at for at, topology in enumerate(KNOWN)}


def lines(topology: Topology) -> list[str]:
    """Decode steps of 2 ms, experts of 4 ms over the GPUs, 0.5 ms a rank; chunk steps of their own time."""
    degrees = f"{topology.tensor_parallel},{topology.expert_parallel},{topology.data_parallel}"
    gpus = topology.tensor_parallel * topology.data_parallel
    ms = 2 + 4 / gpus + 0.5 * (topology.data_parallel - 1)
    decode = [f"{degrees},0,0,{n},{n * 100},{ms}" for n in (1, 2, 4, 8, 16, 24, 32) for _ in range(12)]
    own = CHUNK_MS.get(topology, 99.0)
    return decode + [f"{degrees},{new},1,0,0,{own}" for new in (256, 512, 1024, 2048) for _ in range(12)]


def test_a_measured_topology_left_out_is_met_as_the_page_says():
    measured = Measured(shared("calibration/iter_b300_moe.csv.gz"), {"model": "Qwen3.6-35B-A3B"})
    errors = {e.phase: e.mape for e in phase_errors(*transferred(measured, Topology(4)).judged())}
    (note,) = (note for note in read_table("topology-left-out").notes if "nearest TP" in note)
    assert f"`tp4` {errors['mixed']:.1f} (from `tp2`)" in note
    assert errors["decode"] < 2.35


@pytest.fixture
def mixture(tmp_path):
    path = tmp_path / "mixture.csv"
    path.write_text("\n".join([COLUMNS, *(line for topology in KNOWN for line in lines(topology))]) + "\n")
    return path


def test_rows_are_read_by_topology(mixture):
    found = measured_topologies(Measured(mixture, {}))
    assert list(found) == sorted(KNOWN)
    assert {len(rows) for rows in found.values()} == {132}
    assert list(measured_topologies(Measured(mixture, {"ep": "4"}))) == [Topology(1, 4, 4), Topology(2, 4, 2)]


def test_an_unmeasured_topology_has_the_decodes_of_the_family_and_the_nearest_chunks(mixture):
    fitted = transferred(Measured(mixture, {}), Topology(4, 4))
    assert len(fitted.unseen) == 0
    assert "chunk steps from tp2-ep4-dp2" in fitted.how
    assert fitted.model.step(StepBatch((), 8, 800, 100)) / 1e6 == pytest.approx(2 + 4 / 4, rel=0.1)
    chunk = fitted.model.step(StepBatch(((1024, 0),))) / 1e6
    assert chunk == pytest.approx(CHUNK_MS[Topology(2, 4, 2)], rel=0.02)


def test_the_command_holds_out_a_topology_of_the_file(mixture, tmp_path, capsys):
    out = tmp_path / "set.toml"
    asked = ["calibrate", "fit", str(mixture), "--tp", "2", "--ep", "4", "--dp", "2", "--transfer"]
    assert kvsim([*asked, "-o", str(out)]) == 0
    assert "chunk steps from tp1-ep4-dp4" in capsys.readouterr().err
    table = read_toml(out, "set")
    assert [table[f"{kind}_parallel"] for kind in ("tensor", "expert", "data")] == [2, 4, 2]
    assert table["held_out"]["decode"]["mape_percent"] < 10
    model = load_step_time(str(out))
    assert model.step(StepBatch(((512, 0),))) / 1e6 == pytest.approx(CHUNK_MS[Topology(1, 4, 4)], rel=0.02)


def test_what_cannot_be_transferred_is_refused_in_one_line(mixture, tmp_path, capsys):
    asked = ["calibrate", "fit", str(mixture), "-o", str(tmp_path / "x.toml"), "--tp", "2"]
    assert kvsim([*asked, "--ep", "4"]) == 2
    assert "--ep beyond tp × dp" in capsys.readouterr().err
    assert kvsim([*asked, "--dp", "2"]) == 2
    assert "ranks and unequal lengths are composed of kernels" in capsys.readouterr().err
    assert kvsim([*asked, "--ep", "8", "--transfer"]) == 2
    assert "one of ep 8" in capsys.readouterr().err


def test_a_name_may_be_a_topology_without_a_set():
    """Decode steps come from the family, chunk steps from the nearest TP degree of the ep; a set stays itself."""
    name = "b300-qwen3.6-35b-a3b:tp4,ep4"
    found, nearest = load_step_time(name), load_step_time("b300-qwen3.6-35b-a3b-tp2-ep4-dp2")
    prompt, decode = StepBatch(((1024, 0),)), StepBatch((), 8, 8000, 1000)
    assert found.step(prompt) == pytest.approx(nearest.step(prompt), rel=0.01)
    assert found.step(decode) == pytest.approx(
        load_step_time("b300-qwen3.6-35b-a3b-tp4").step(decode), rel=0.05
    )
    entry = step_time_entry(name)
    assert (entry["tensor_parallel"], entry["expert_parallel"], entry["data_parallel"]) == (4, 4, 1)
    decodes = [float(row[1]) for row in read_table("topology-left-out").rows]
    assert entry["held_out"]["decode"]["mape_percent"] == pytest.approx(sum(decodes) / len(decodes), abs=0.01)
    measured = load_step_time("b300-qwen3.6-35b-a3b:tp2,ep4,dp2")
    assert measured.step(decode) == nearest.step(decode)
    for wrong, says in ((":tp4,ep3", "not a topology"), (":tp16,ep16", "no measured topology of that ep")):
        with pytest.raises(UsageError, match=says):
            load_step_time(f"b300-qwen3.6-35b-a3b{wrong}")
