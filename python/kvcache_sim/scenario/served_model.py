"""The language model that a scenario serves, with its formats, compared with the model of its step times."""

from __future__ import annotations

from kvcache_sim.errors import KvsimError
from kvcache_sim.model.dtypes import KV_DTYPES, bits_per_value, check_dtype
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.roofline_name import with_dtypes
from kvcache_sim.model.step_times import measured_on, nearest_source
from kvcache_sim.scenario.schema import ScenarioModel


def served_model(model: ScenarioModel) -> ModelSpec:
    """Return the served model.

    ``cache.kv_dtype`` takes precedence over the step-time set's format, which takes precedence over the
    model's. Raises UsageError for an unknown model, step-time set or format.
    """
    subject = measured_on(model.replica.step_time)
    given = model.cache.kv_dtype
    kv_dtype = check_dtype(given, "cache.kv_dtype", KV_DTYPES) if given else subject.kv_dtype
    return with_dtypes(load_model(str(model.model)), subject.weight_dtype, kv_dtype)


#: Models whose weights differ by less, such as two releases of one size, count as the same model.
_ALIKE = 0.1


def other_model_timed(model: ScenarioModel) -> str | None:
    """Return a note if the step-time set's model differs from the served model.

    None if no time passes, if the set names no model or a model of its own, or if both models have about the
    same number of weights.
    """
    replica, served = model.replica, str(model.model)
    if replica.instant:
        return None
    subject = measured_on(replica.step_time)
    if subject.model is None or subject.gpu is None or subject.model == served:
        return None
    try:
        own, timed = load_model(served), load_model(subject.model)
    except KvsimError:
        return None  # an unknown model cannot be compared
    pairs = ((own.params_total, timed.params_total), (own.params_active, timed.params_active))
    if all(abs(a - b) <= _ALIKE * b for a, b in pairs):
        return None
    own_steps = nearest_source(served, subject.gpu, subject.tensor_parallel)
    return (
        f"steps take as long as those of {subject.model} (replica.step_time: {replica.step_time}), KV is "
        f"that of {served}: its own steps are replica.step_time={own_steps}"
    )


def other_kv_timed(model: ScenarioModel) -> str | None:
    """Return a note if ``cache.kv_dtype`` has another size than the KV that the steps were timed with.

    None if no time passes, and for sources that name no GPU or are files: their format is not known.
    """
    replica, given = model.replica, model.cache.kv_dtype
    if replica.instant or given is None or replica.step_time.endswith((".toml", ".csv", ".csv.gz")):
        return None
    subject = measured_on(replica.step_time)
    if subject.model is None or subject.gpu is None:
        return None
    try:
        timed = subject.kv_dtype or load_model(subject.model).kv_dtype
    except KvsimError:
        return None
    if bits_per_value(timed) == bits_per_value(given):
        return None
    degree = f"tp{subject.tensor_parallel}" if subject.tensor_parallel > 1 else ""
    options = [each for each in (degree, subject.weight_dtype) if each]
    source = f"roofline:{subject.model}@{subject.gpu}"
    with_given = f"{source}:{','.join([*options, f'kv-{given}'])}"
    as_timed = source + (f":{','.join(options)}" if options else "")
    return (
        f"steps read {timed} KV (replica.step_time: {replica.step_time}), not {given}: that takes "
        f"replica.step_time={with_given}, compared with {as_timed}"
    )
