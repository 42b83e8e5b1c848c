"""SGLang servers with one client: simulate every published row, and fit the host without each row's model.

    python benches/sglang_one_client.py > docs/data/sglang-one-client.toml

Needs ../shared/calibration/sglang_one_client.csv and scipy. A row's launch line becomes a scenario by
``kvsim init --from``; one request of its mean lengths runs with ``replica.host: none``, which gives TPOT and
TTFT of the roofline alone, and with the host that the release chooses. The fit: TPOT = roofline + step +
layers x (time a layer, on B200); TTFT = CLIENT_MS + the longer of the roofline's and layers x launch.
"""

from __future__ import annotations

import csv
import json
import re
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import kvcache_sim as kv
import numpy as np
import yaml
from kvcache_sim.base.errors import KvsimError
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.run_intervals import is_mixture
from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch

ROWS = Path(__file__).resolve().parents[2] / "shared/calibration/sglang_one_client.csv"
#: A client's offset. Any of 25 to 97 ms leaves TTFT 17 to 21 % off with a launch fitted to it.
CLIENT_MS = 40.0


class Times(NamedTuple):
    """TPOT and TTFT in ms."""

    tpot: float
    ttft: float


class Row(NamedTuple):
    """A published row; of a refused one ``refusal`` says why, and there is no simulation of it."""

    hardware: str
    gpu: str
    model: str
    run: str
    measured: Times
    refusal: str
    family: str = ""
    layers: int = 0
    roofline: Times = Times(0.0, 0.0)
    shipped: Times = Times(0.0, 0.0)

    @property
    def is_judged(self) -> bool:
        """True for a simulated row of an NVIDIA GPU."""
        return not self.refusal and not self.gpu.startswith("mi")


class Host(NamedTuple):
    """Fitted times in ms: of a step, of a layer of a step on B200, of the launch of a layer."""

    step: float
    layer: float
    launch: float

    def times(self, row: Row) -> Times:
        """Return the times of a row with this host."""
        layer = self.layer if row.gpu == "b200" else 0.0
        tpot = row.roofline.tpot + self.step + layer * row.layers
        return Times(
            tpot, CLIENT_MS + max(row.roofline.ttft + tpot - row.roofline.tpot, self.launch * row.layers)
        )


def read_rows(path: Path = ROWS) -> list[Row]:
    """Return every row of the file, simulated where its launch line is."""
    with path.open(newline="") as file:
        return [_row(given) for given in csv.DictReader(file)]


def _row(given: dict[str, str]) -> Row:
    gpu = re.findall(r"gb300|b200|h100|h200|a100|mi300x|mi350x", given["hardware"].lower())[0]
    number = int(given["requests"])
    prompt, answer = (round(int(given[f"{kind}_tokens"]) / number) for kind in ("input", "output"))
    named = re.search(r"--model(?:-path)? (\S+)", given["launch"])
    model = named[1].split("/")[-1] if named else ""
    measured = Times(float(given["tpot_mean_ms"]), float(given["ttft_mean_ms"]))
    row = Row(f"{gpu.upper()} TP{given['tp'] or '-'}", gpu, model, f"{prompt}+{answer}", measured, "")
    requests = {"timestamp": [0], "input_length": [prompt], "output_length": [answer]}
    try:
        scenario: dict[str, Any] = yaml.safe_load(scenario_of_launch(given["launch"], gpu))
        alone, shipped = (partial(_simulated, scenario, requests)(host) for host in ({"host": "none"}, {}))
    except KvsimError as error:
        return row._replace(refusal=str(error).split(";")[0].removeprefix("--from: "))
    layers = load_model(scenario["model"]).layers
    family = "moe" if is_mixture(scenario["model"]) else "dense"
    return row._replace(family=family, layers=layers, roofline=alone, shipped=shipped)


def _simulated(scenario: dict[str, Any], requests: dict[str, list[int]], host: dict[str, str]) -> Times:
    given = {**scenario, "replica": {**scenario["replica"], **host}}
    latency = kv.simulate(requests, given).summary["latency"]
    return Times(latency["tpot"]["avg"], latency["ttft"]["avg"])


def fitted(rows: list[Row]) -> Host:
    """Return the host of some rows, by relative errors; a model weighs the root of its rows."""
    from scipy.optimize import least_squares

    weight = np.array([sum(other.model == row.model for other in rows) ** -0.5 for row in rows])

    def errors(of: str, host: Host) -> Any:
        pairs = [(getattr(host.times(row), of), getattr(row.measured, of)) for row in rows]
        return weight * np.log([simulated / measured for simulated, measured in pairs])

    solve = partial(least_squares, bounds=(0, np.inf), loss="soft_l1", f_scale=0.1)
    step, layer = solve(lambda x: errors("tpot", Host(x[0], x[1], 0)), (1.0, 0.01)).x
    (launch,) = solve(lambda x: errors("ttft", Host(step, layer, x[0])), (1.5,)).x
    return Host(float(step), float(layer), float(launch))


def left_out(rows: list[Row]) -> dict[Row, Times]:
    """Return the times of each simulated row by the host of the judged rows of all other models."""
    hosts = {
        row.model: fitted([other for other in rows if other.is_judged and other.model != row.model])
        for row in rows
        if not row.refusal
    }
    return {row: hosts[row.model].times(row) for row in rows if not row.refusal}


def median_errors(pairs: list[tuple[Times, Times]]) -> Times:
    """Return the median errors in per cent of pairs of simulated and measured times."""
    return Times(*(100 * median(abs(s[at] / m[at] - 1) for s, m in pairs) for at in (0, 1)))


def table(rows: list[Row]) -> str:
    """Return the page's table as TOML."""
    without = left_out(rows)
    judged = [row for row in rows if row.is_judged]
    errors = {
        "no host": median_errors([(row.roofline, row.measured) for row in judged]),
        "a host fitted to the other models": median_errors([(without[row], row.measured) for row in judged]),
        "the packaged hosts, fitted to all": median_errors([(row.shipped, row.measured) for row in judged]),
    }
    said = "; ".join(f"{name} {one.tpot:.1f} and {one.ttft:.1f} %" for name, one in errors.items())
    lines = []
    for row in rows:
        own = [row.roofline, without[row], row.shipped] if not row.refusal else []
        cells = [row.hardware, row.model, row.run]
        for at in ("tpot", "ttft"):
            simulated = [f"{getattr(one, at):.3g}" for one in own]
            cells += [f"{getattr(row.measured, at):.4g}", " / ".join(simulated) or row.refusal]
        lines.append(f"  {json.dumps(cells, ensure_ascii=False)},")
    host = fitted(judged)
    return (
        _HEAD.format(judged=len(judged), rows=len(rows), said=said, host=host, client=CLIENT_MS)
        + "\n".join(lines)
        + "\n]\n"
    )


_HEAD = '''title = "SGLang servers with one client"
source = """
bench_serving results of SGLang's cookbook, SGLang 0.5.6 to 0.5.10 (sglang_one_client.csv, Apache-2.0); \\
`python benches/sglang_one_client.py`"""
test = "calibrate/test_hosts.py"
about = """
Rooflines lack the host: a chunk of 61 to 94 layers takes 100 to 165 ms whatever its length. `replica.host:
sglang` and `sglang-b200`, chosen by the release, add three times: every step {host.step:.2f} ms, on B200
{host.layer:.3f} ms a layer; a step with a chunk at least {host.launch:.2f} ms a layer, whose launch stops all
decodes; {client:g} ms of the client's offset. Median errors of TPOT and TTFT over the {judged} simulated
NVIDIA rows of {rows}: {said}.
"""
columns = [
  "hardware",
  "model",
  "prompt + answer",
  "TPOT, ms",
  "without host / of other models / packaged",
  "TTFT, ms",
  "without host / of other models / packaged ",
]
notes = [
  """No row is left out: AMD rows are simulated with the hosts of NVIDIA machines and count in no median; \\
  their first request compiles (TTFT). The worst misses are Kimi-K2.5 on H200 at long prompts, gpt-oss-120b \\
  and GLM-4.7-Flash (Triton attention).""",
  """What every step adds is time on the GPU that sums of kernels lack: an overlapped scheduler hides none \\
  of it. What a chunk adds is the CPU's launch: the longer of launch and kernels counts.""",
]
rows = [
'''


if __name__ == "__main__":
    print(table(read_rows()), end="")
