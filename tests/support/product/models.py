"""Names of models, GPUs and step times for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.model.adjusted import ScaledStepTime, WithSequenceTime
from kvcache_sim.model.attention import HeadAttention, LinearAttention
from kvcache_sim.model.catalog import entry_names, read_entry
from kvcache_sim.model.channels import load_channel
from kvcache_sim.model.gpus import gpu_names
from kvcache_sim.model.kv_capacity import kv_capacity
from kvcache_sim.model.kv_groups import kv_layout
from kvcache_sim.model.latent_attention import CompressedAttention, Indexer, LatentAttention
from kvcache_sim.model.layer_group import WeightDtypes, grouped
from kvcache_sim.model.model_file import model_text, parse_model
from kvcache_sim.model.model_spec import ModelSpec
from kvcache_sim.model.residual_grid import ResidualGrid, Residuals
from kvcache_sim.model.run_intervals import run_factors, source_kind, step_interval
from kvcache_sim.model.shared_time import SharedTime
from kvcache_sim.model.stated_errors import stated_step_errors
from kvcache_sim.model.step_time import zero_step_time
from kvcache_sim.model.step_times import measured_on
from kvcache_sim.model.templates import new_gpu, new_model
