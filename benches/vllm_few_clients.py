"""vLLM servers with 4 to 8 clients: fit the host without each row's model, and judge it on more clients.

    python benches/vllm_few_clients.py > docs/data/vllm-few-clients.toml

Needs the extra ``hardware``. Rows are those of ``whole_runs_servers.py`` that the roofline has. The fit: a
launch a layer and a client's time a prompt token, of least relative error of TTFT, to dense models on H100
and H200, and to all models on B200 and B300.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from statistics import median
from typing import NamedTuple

from kvcache_sim.base.errors import UsageError
from kvcache_sim.extras.calibrate.aiconfigurator.kernels import is_mixture
from kvcache_sim.extras.calibrate.aiconfigurator.library import model_configuration
from kvcache_sim.extras.calibrate.closed_loop import StepTimes
from kvcache_sim.extras.calibrate.server_runs import ServerRun, server_runs
from kvcache_sim.model.hosts import HostSpec
from msgspec.structs import replace
from whole_runs_servers import Values, roofline, served

#: Most clients of a row that is fitted to.
FEW = 8
#: The client's offset in ns: that of the published H100 stages (``replica.host: vllm-http``).
CLIENT_NS = 8_000_000
TRIED_NS = {
    "launch_per_layer_ns": range(0, 1_300_000, 100_000),
    "client_offset_per_token_ns": (600, *range(1000, 13_000, 1000)),
}
#: Packaged host → its GPUs and families of models.
GROUPS = {
    "vllm": (("h100", "h200"), ("dense",)),
    "vllm-b200": (("b200", "b300"), ("dense", "moe")),
}
FIGURES = ("ttft_mean", "tpot_mean", "e2e_mean")
NONE = HostSpec("none", "", client_offset_ns=CLIENT_NS)
START = replace(NONE, launch_per_layer_ns=500_000, client_offset_per_token_ns=5000)


class Row(NamedTuple):
    """A measured run with the step times of its roofline."""

    run: ServerRun
    times: StepTimes

    @property
    def gpu(self) -> str:
        """The GPU by kvsim's name."""
        return self.run.deployment.system.removesuffix("_sxm")

    @property
    def family(self) -> str:
        """``dense`` or ``moe``."""
        return "moe" if is_mixture(model_configuration(self.run.deployment.model)) else "dense"

    def errors(self, host: HostSpec) -> Values:
        """Return the signed relative errors of TTFT, TPOT and E2E with a host."""
        ttft, tpot = self.run.ttft_ms, self.run.tpot_ms
        real = (ttft, tpot, ttft + tpot * (0.9 * self.run.output_tokens - 1))
        found = _served(self, host)
        return {name: found[name] / one - 1 for name, one in zip(FIGURES, real, strict=True)}


def rows() -> Iterator[Row]:
    """Yield vLLM's rows that the roofline has."""
    for run in server_runs()[0]:
        if run.label[0] == "vllm":
            with contextlib.suppress(UsageError):
                times = roofline(run.deployment, run.prompt_tokens)
                if times is not None:
                    yield Row(run, times)


@cache
def _served(row: Row, host: HostSpec) -> Values:
    return served(row.times, row.run, host)[1]


def fitted(group: Iterable[Row]) -> HostSpec:
    """Return the host of some rows, one time after the other; a model weighs the root of its rows."""
    own = list(group)
    of = Counter(row.run.deployment.model for row in own)

    def loss(host: HostSpec) -> float:
        logs = [(row, math.log1p(row.errors(host)["ttft_mean"])) for row in own]
        return sum(of[row.run.deployment.model] ** -0.5 * math.hypot(1, log / 0.1) for row, log in logs)

    host, before = START, None
    while host != before:
        before = host
        for key, values in TRIED_NS.items():
            host = min((replace(host, **{key: value}) for value in values), key=loss)
    return host


def judged(name: str, found: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Return the rows of a packaged host: those to which it is fitted, and those with more clients."""
    gpus, families = GROUPS[name]
    own = [row for row in found if row.gpu in gpus and row.family in families]
    return [row for row in own if row.run.concurrency <= FEW], [
        row for row in own if row.run.concurrency > FEW
    ]


def left_out(few: list[Row]) -> dict[str, HostSpec]:
    """Return by model the host fitted to the rows of all others; none of a single model."""
    models = dict.fromkeys(row.run.deployment.model for row in few)
    others = {m: [row for row in few if row.run.deployment.model != m] for m in models}
    return {m: fitted(own) for m, own in others.items() if own}


def median_errors(own: Iterable[tuple[Row, HostSpec]]) -> list[float]:
    """Return the median absolute errors of TTFT, TPOT and E2E in per cent."""
    errors = [row.errors(host) for row, host in own]
    return [100 * median(abs(one[name]) for one in errors) for name in FIGURES]


def table() -> str:
    """Return the page's table as TOML."""
    found, lines = list(rows()), []
    for name in GROUPS:
        few, more = judged(name, found)
        host, without = fitted(few), left_out(few)
        figures = (
            f"{(host.launch_per_layer_ns or 0) / 1e6:g}",
            f"{(host.client_offset_per_token_ns or 0) / 1e3:g}",
        )
        for clients, own in (("4 to 8", few), ("more", more)):
            for family in GROUPS[name][1]:
                ours = [row for row in own if row.family == family]
                hosts = [NONE, None, host]
                errors = [
                    median_errors((row, of or without.get(row.run.deployment.model, host)) for row in ours)
                    for of in hosts
                ]
                cells = [" / ".join(f"{one:.1f}" for one in each) for each in zip(*errors, strict=True)]
                lines.append(f"  {json.dumps([name, *figures, family, clients, str(len(ours)), *cells])},")
    return _HEAD + "\n".join(lines) + "\n]\n"


_HEAD = '''title = "vLLM servers: the host"
source = """
`silicon_sample.csv` of aiconfigurator-core 0.12, vLLM 0.12 to 0.19; \\
`python benches/vllm_few_clients.py`"""
test = "calibrate/test_vllm_hosts.py"
about = """
`replica.host: vllm` and `vllm-b200`, chosen by the release for rooflines and kernel tables: a step of more
than 512 tokens takes at least its launch, and a request comes 8 ms and a time per prompt token after it was
sent. Fitted to TTFT with 4 to 8 clients; more clients judge it. Asynchronous scheduling hides what a decode
step costs the CPU: no term.
"""
columns = [
  "`replica.host`",
  "ms per layer",
  "µs per prompt token",
  "model",
  "clients",
  "runs",
  "TTFT, %: 8 ms alone / of other models / packaged",
  "TPOT, %",
  "E2E, %",
]
notes = [
  """Median errors of rooflines. Dense models on Hopper are one, Llama-3.1-70B: only its loads are others. \\
  A mixture's prompts take up to twice the roofline there (TTFT 39 % too fast), the more so on fewer GPUs: \\
  kernels, no host.""",
  """The time per prompt token lies before the scheduler: on B300 steps with a chunk of a dense model are \\
  within 3 to 5 % of the roofline.""",
  """No row has one client. Dense models show 0.285 ms a layer in iterations on B300, 0.95 in streams of a \\
  rented H100: the range of the launch in every interval; a mixture there 1.65. Chunks of up to 512 tokens, \\
  captured in pieces, get none: 0.3 ms moves the TTFT of the streams by a point at most.""",
]
rows = [
'''


if __name__ == "__main__":
    print(table(), end="")
