"""The language model that a scenario serves, with the formats that scenario and step times say."""

from __future__ import annotations

from kvcache_sim.model.dtypes import KV_DTYPES, check_dtype
from kvcache_sim.model.model_file import load_model
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.roofline_name import with_dtypes
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.scenario.schema import ScenarioModel


def served_model(model: ScenarioModel) -> ModelSpec:
    """Return the model: ``cache.kv_dtype`` goes before what the step-time set says, that before the model's
    own.

    Raises UsageError for an unknown model, step-time set or format.
    """
    subject = measured_on(model.replica.step_time)
    given = model.cache.kv_dtype
    kv_dtype = check_dtype(given, "cache.kv_dtype", KV_DTYPES) if given else subject.kv_dtype
    return with_dtypes(load_model(str(model.model)), subject.weight_dtype, kv_dtype)
