"""The source of a run's step times and its stated error: the group ``step_times`` of the summary."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from kvcache_sim.base.values import Value
from kvcache_sim.model.computed_source import KERNELS_PREFIX
from kvcache_sim.model.hosts import OF_STEPS, load_host
from kvcache_sim.model.linear import LINEAR
from kvcache_sim.model.run_intervals import source_kind
from kvcache_sim.model.stated_errors import Factors, stated_step_errors
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.load import Scenario
from kvcache_sim.scenario.machines import build_machines
from kvcache_sim.scenario.release_defaults import release_of

_ROOFLINE = "roofline:"


class StepTimeSource(Value):
    """A source of step times: its words, its factors (true / simulated; None: not stated), their origin."""

    words: str
    factors: Factors | None
    stated: str

    @property
    def error_percent(self) -> float | None:
        """The farther end of the factors, in per cent; None where no error is stated."""
        return None if self.factors is None else 100 * (max(self.factors.high, 1 / self.factors.low) - 1)


def step_time_source(name: str, engine: str = "", host: str = "") -> StepTimeSource:
    """Return the source of a step-time model by name; raises UsageError like ``load_step_time``.

    ``engine`` is the one simulated; where it was not measured on the GPU, the words begin with that.
    ``host`` is the name of its host, which the words name if it has times that the source lacks.
    """
    errors = stated_step_errors(name, engine)
    if errors is None:
        return StepTimeSource(_words(name), None, "given, not measured: no error")
    stated = [factors for factors in (errors.decode, errors.chunk) if factors is not None]
    hull = Factors(min(f.low for f in stated), max(f.high for f in stated)) if stated else None
    kind = source_kind(name, engine)
    words = _words(name)
    if host and (OF_STEPS | {"stage_launch"}) & load_host(host).figures_for(name).keys():
        words += f" with host {host}"
    if kind is not None and kind.unmeasured:
        words = f"{kind.unmeasured}: {words.replace('no measurement of ', '')}"
    return StepTimeSource(words, hull, errors.source)


def _words(name: str) -> str:
    if name.startswith(_ROOFLINE):
        subject = measured_on(name)
        gpu = PurePath(subject.gpu or "").name.removesuffix(".toml").upper()
        return f"roofline (no measurement of {gpu} TP{subject.tensor_parallel})"
    if name.startswith(KERNELS_PREFIX):
        return f"measured kernels {name}"
    if name.startswith(LINEAR):
        return f"given costs {name}"
    if name.endswith((".csv", ".csv.gz")):
        return f"measured iterations {PurePath(name).name}"
    return f"fitted set {PurePath(name).name}"


def summarize_step_times(scenario: Scenario) -> dict[str, Any]:
    """Return the group ``step_times`` of the summary, empty if no machine has step times (instant runs).

    Of several sources all are named, each with its own error; ``error_percent`` and the factors cover all of
    them, None if one states no error. Cost: under 1 ms.
    """
    machines = build_machines(scenario.model, scenario.tree)
    replicas = [machine.replica for machine in machines if not machine.replica.instant]
    names = dict.fromkeys((one.step_time, release_of(one).engine, one.host or "") for one in replicas)
    if not names:
        return {}
    sources = [step_time_source(*name) for name in names]
    given = [factors for named in sources if (factors := named.factors) is not None]
    known = given if len(given) == len(sources) else []
    percents = [named.error_percent for named in sources if named.error_percent is not None]
    return {
        "step_times": {
            "source": "; ".join(named.words for named in sources),
            "error_percent": max(percents) if known else None,
            "error_from": "; ".join(_origin(named, len(sources) > 1) for named in sources),
            "factor_low": min(factors.low for factors in known) if known else None,
            "factor_high": max(factors.high for factors in known) if known else None,
        }
    }


def _origin(source: StepTimeSource, is_one_of_several: bool) -> str:
    if not is_one_of_several:
        return source.stated
    size = "" if source.factors is None else f" (×{source.factors.low:.3g}–{source.factors.high:.3g})"
    return f"{source.words}{size}: {source.stated}"
