"""Entry point: the step-time model of a deployment name, from cached tables or newly sampled."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from kvcache_sim.extras.calibrate.aiconfigurator.deployment import (
    Deployment,
    deployed_dtypes,
    deployed_names,
    parse_deployment,
)
from kvcache_sim.extras.calibrate.aiconfigurator.library import installed_folder
from kvcache_sim.extras.calibrate.aiconfigurator.sampled import (
    SampledStepTime,
    keep_table,
    read_table,
    table_key,
)
from kvcache_sim.model.computed_source import MeasuredOn

#: Meanings of the library's words for a figure's source.
_SOURCES = {
    "silicon": "measured",
    "mixed": "measured in part",
    "empirical": "interpolated",
    "sol": "from the hardware's limits",
    "estimated": "estimated",
}


#: Relative cost of KV in mixed steps, compared with decode steps, below which it is reported.
_CHEAP_KV = 0.5


def step_time(text: str, links: str | None) -> SampledStepTime:
    """Return the step times of a deployment name without its prefix, over other links where given.

    The entry point ``aiconfigurator`` of ``kvsim.step_times``. Raises as ``aiconfigurator_step_time``.
    """
    return aiconfigurator_step_time(text) if links is None else over_links(text, links)


def measured_on(text: str) -> MeasuredOn:
    """Return the subject of a deployment name without its prefix."""
    return MeasuredOn(*deployed_names(text), *deployed_dtypes(text))


@lru_cache(maxsize=16)
def aiconfigurator_step_time(text: str) -> SampledStepTime:
    """Return the table of a deployment name without its prefix.

    Sampled once, in seconds, and then read from the cache. Raises UsageError, in one line, if the library is
    not installed, has no such model, no kernels of the system, or no table for the dtypes.
    """
    deployment = parse_deployment(text)
    installed_folder()
    key = table_key(deployment)
    kept = read_table(key)
    if kept is None:
        kept = _made(deployment)
        keep_table(key, kept)
    return kept


@lru_cache(maxsize=16)
def over_links(text: str, links: str) -> SampledStepTime:
    """Return the table of a deployment name with all-reduces over other links; computed in each process.

    Raises as ``aiconfigurator_step_time`` and ``with_other_links``.
    """
    from kvcache_sim.extras.calibrate.aiconfigurator.kernels import measured_kernels
    from kvcache_sim.extras.calibrate.aiconfigurator.other_links import with_other_links

    table = aiconfigurator_step_time(text)
    return with_other_links(table, measured_kernels(parse_deployment(text)), links, text)


def _made(deployment: Deployment) -> SampledStepTime:
    from kvcache_sim.extras.calibrate.aiconfigurator.kernels import measured_kernels
    from kvcache_sim.extras.calibrate.aiconfigurator.other_links import with_shared_work
    from kvcache_sim.extras.calibrate.aiconfigurator.sampling import sampled_step_time

    kernels = measured_kernels(deployment)
    table, errors = sampled_step_time(kernels)
    if kernels.mixture and deployment.data_parallel > 1:
        table = with_shared_work(table, kernels)
    off = ", ".join(f"{e.phase} {e.mape:.1f} %" for e in errors)
    shares = ", ".join(f"{share:.0%} {_SOURCES.get(name, name)}" for name, share in kernels.shares().items())
    facts = (
        _parallelism(deployment, kernels.mixture),
        kernels.formats(),
        *(f"dtypes changed: {reason}" for reason in kernels.repairs),
        f"the table is off its source, at steps not sampled, by {off} on average",
        f"of a decode step's and a prompt's time: {shares}",
        *table.facts,
        *_cheap_kv(table),
        *_low_fidelity(kernels.fallbacks),
    )
    return replace(table, facts=facts)


def _parallelism(deployment: Deployment, mixture: bool) -> str:
    degrees = f"tp {deployment.tensor_parallel}, pp {deployment.pipeline_parallel}"
    if mixture:
        experts = f"experts ep {deployment.expert_parallel} × tp {deployment.split_parts}"
        degrees += f", dp {deployment.data_parallel}, {experts}"
    elif deployment.data_parallel > 1:
        degrees += f", dp {deployment.data_parallel}"
    return f"{deployment.model} on {deployment.system} under {deployment.engine}: {degrees}"


def _cheap_kv(table: SampledStepTime) -> tuple[str, ...]:
    mixed, alone = table.model.kv_mixed_ms_per_thousand, table.model.kv_ms_per_thousand
    if mixed >= _CHEAP_KV * alone:
        return ()
    return (
        f"in the source KV reads in steps with a chunk cost {mixed / alone:.0%} of those in decode steps",
    )


def _low_fidelity(tables: int) -> tuple[str, ...]:
    said = f"{tables} tables of low fidelity, another engine's, are used where the library has no other"
    return (said,) if tables else ()
