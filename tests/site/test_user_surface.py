"""Keys, verbs, flags, formats, policies, figures and columns against those of commit 091aed3."""

import re

from support.shared_files import vendored
from user_surface import surface

BEFORE = vendored("user_surface_091aed3.txt")

#: Dropped with workload studies, offline batches, pins, adapter slots and models that share machines.
DROPPED = {
    "key: retention.pin_s = {}",
    "key: offline.batch = 256",
    "key: offline.samples = 1",
    "key: offline.pause = 0ns",
    "key: offline.flush = true",
    "key: models.load_rate = 25GB/s",
    "key: models.sleep_rate = null",
    "key: adapters.slots = 4",
    "key: adapters.size = 200MB",
    "key: adapters.load_rate = 25GB/s",
    "key: models.of.NAME.shares = null",
    "key: models.of.NAME.weights = null",
    "figure: models.changes []",
    "figure: models.change_s [s]",
    "figure: adapters.loads []",
    "figure: adapters.load_s [s]",
    "figure: adapters.replaced []",
    "figure: offline.batches []",
    "figure: offline.makespan_s [s]",
    "figure: offline.batch_s [s]",
    "figure: offline.tail_s [s]",
    "figure: retention.pins [prompts]",
    "figure: retention.most_pinned_blocks [blocks]",
}

#: Routers at that commit: five more are listed now.
ROUTERS = (
    "round-robin | random | least-loaded | session-affinity | cache-aware | longest-prefix | prefill-cost"
    " | overlap-cost | power-of-two | consistent-hashing | weighted | kvaware | loadaware | dynamo-kv"
    " | vllm-dp | vllm-dp-waiting | file.py:Name"
)

#: The same name, shown otherwise: words are listed now, ``--backend`` names its replacement, another default,
#: ``cachesim`` takes several.
CHANGED = {
    "key: replica.sampler = sorting (sorting | fused)",
    "key: tiers.cpu.semantics = null (vllm-offload | hicache | lmcache | groups)",
    f"key: router.policy = round-robin ({ROUTERS})",
    f"key: handover.router = least-loaded ({ROUTERS})",
    'key: router.scorers = {"prefix":3.0,"kv-use":2.0,"queue":2.0}',
    "key: write.policy = back",
    "flag: simulate --backend (native | python)",
    "flag: cachesim --backend (BackendChoice)",
    "flag: cachesim --capacity (str)",
    "flag: cachesim --policy (str)",
    "flag: trace check --format (str)",
    "flag: trace stats --format (str)",
    "key: replica.step_time = h100-llama-3-8b-tp1",
}

ADDED = {
    *(f"models: {name}" for name in ("kimi-k3", "deepseek-v4-pro", "glm-5.2", "glm-5.3", "minimax-m3")),
    "policy: lmcache-server:lru",
    "policy: lmcache-server:arc",
    "key: tiers.cpu.chunk_tokens = null",
    "key: handover.decide = always (always | threshold | shorter-wait | llm-d | dynamo-isl-bounding | dynamo-prefill-load"
    " | dynamo-isl-or-load)",
    *(
        f"key: tiers.{tier}.{key} = null"
        for tier in ("cpu", "disk")
        for key in ("kv_ratio", "encode", "decode")
    ),
    "key: handover.kv_ratio = 1.0",
    "key: handover.encode = null",
    "key: handover.decode = null",
    "key: handover.threshold_tokens = null",
    "key: handover.threshold_share = 0.7",
    "key: handover.min_prompt_tokens = 0",
    "key: handover.prefill_busy = null",
    "key: tenants.order = in-turn (in-turn | random)",
    "key: router.overlap_credit = 1.0",
    "key: router.hotspot_detection = true",
    "key: router.class_prefix_blocks = 4",
    "key: router.window_requests = 1000",
    "key: router.update_interval = 100ms",
    "key: router.load_scale = 8.0",
    "key: router.controller = aimd (aimd | sigmoid)",
    "flag: simulate --engine (native | spec | spec-plain)",
    "key: session_view.max_tokens = null",
    "key: cache.overflow = wait (wait | drop)",
    "figure: plugins.row.kind []",
    "figure: plugins.row.name []",
    "figure: plugins.row.calls []",
    "figure: plugins.row.s [s]",
    "figure: context_window.answers_ended []",
    "figure: requests.rejected_beyond_context []",
    "key: replica.sampling = model (model | plain)",
    "key: replica.sustained_clocks = true",
    "key: replica.allow_long_max_model_len = false",
    "key: replica.vllm_release = 0.9.0 (0.8.0 | 0.8.4 | 0.8.5 | 0.9.0)",
    "key: replica.step_time = h100-llama-3.1-8b-tp1",
    "step_times: h100-llama-3.1-8b-tp1",
    "flag: calibrate fit --ep (int)",
    "flag: calibrate fit --dp (int)",
    "flag: curve --memory (str)",
    "flag: calibrate fit --unequal (pathlib.Path)",
    "flag: compare --rank-saturated (bool)",
    "flag: compare --settings (bool)",
    "figure: saturated []",
    "figure: saturation.wait.<statistic> [ms]",
    "figure: saturation.arrived_per_s [1/s]",
    "figure: saturation.served_per_s [1/s]",
    "figure: saturation.holds_per_s [1/s]",
    "figure: saturation.sentence []",
    "figure: engine.name []",
    "figure: engine.steps []",
    "flag: calibrate coverage",
    "flag: calibrate coverage --by (run | deployment)",
    "flag: calibrate coverage --format (text | json)",
    "flag: cachesim --whole (bool)",
    "flag: explain --plugins (bool)",
    "flag: reproduce --plugins (bool)",
    "flag: capacity --pools ( | auto)",
    "flag: sweep --repeats (int)",
    "flag: simulate --sensitivity (bool)",
    "flag: trace convert --answer-tokens (int)",
    "flag: trace import --answer-tokens (int)",
    "flag: simulate --no-sensitivity (bool)",
    *(f"figure: step_times.{name} []" for name in ("source", "error_from", "factor_low", "factor_high")),
    "figure: step_times.error_percent [%]",
    *(
        f"figure: certainty.<figure>.{part}_{end} []"
        for part in ("model", "requests")
        for end in ("low", "high")
    ),
    "figure: cache.upper_bound_token_hit_rate [share]",
    *(f"figure: certainty.<figure>.{bound} []" for bound in ("slow", "fast")),
}


#: Former spelling of flags → theirs now; the command line still takes the former (``cli/former.py``).
RENAMED = {
    r"(flag: (?:curve|policies new)) --out\b": r"\1 -o --output",
    r"(flag: trace [a-z]+) --out -o\b": r"\1 -o --output",
    r"flag: trace tokens -o --output --out\b": "flag: trace tokens -o --output",
    r"(flag: trace (?!import)[a-z]+) --block-size\b": r"\1 --trace-block-size",
    r"flag: trace rechunk --to\b": "flag: trace rechunk --to --block-size",
    r"flag: trace tokens --quiet\b": "flag: trace tokens --quiet -q",
    r"flag: sweep --trace\b": "flag: sweep trace",
    **{  # names of classes, now the choices themselves
        rf" \({named}\)": f" ({choices})"
        for named, choices in {
            "OrderChoice": "tail | root",
            "OutputsChoice": "prompt | computed | all",
            "LastPartialChoice": "drop | keep",
            "WritePolicyChoice": "write_through | write_through_selective | write_back",
            "CpuPolicyChoice": "lru | arc",
            "Scope": "document | aiperf",
            "Content": "parity | collision-free",
        }.items()
    },
    r"(flag: cachesim --format) \(OutputFormat\)": r"\1 (table | json)",
    r"(flag: curve --format) \(OutputFormat\)": r"\1 (table | json | csv)",
}


def lines_before() -> list[str]:
    """Return the lines of that commit, flags in their spelling of now."""
    lines = BEFORE.read_text().splitlines()
    for former, now in RENAMED.items():
        lines = [re.sub(former, now, line) for line in lines]
    return lines


def test_nothing_a_user_can_name_is_missing() -> None:
    before, now = lines_before(), surface()
    gone = {line for line in before if line not in now and not line.startswith("flag: study")}
    assert gone == DROPPED | CHANGED
    names = [line.split(" (")[0] for line in now]
    keys = [name.split(" = ")[0] for name in names]
    assert all(line.split(" (")[0] in names or line.split(" = ")[0] in keys for line in CHANGED)


def test_what_was_added_is_listed() -> None:
    before = [line.split(" (")[0] for line in lines_before()]
    assert {line for line in surface() if line.split(" (")[0] not in before} == ADDED
