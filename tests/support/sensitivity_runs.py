"""Output of `kvsim explain --sensitivity` for hand-written requests."""

import json

from kvcache_sim.cli.main import run as kvsim

#: A set whose rows held out state 5 % of a decode step, 8 % of one with a chunk.
SET = """
model = "llama-3.1-8b"
[coefficients]
weights_ms = {weights}
token_ms = {token}
exponent = 1.0
kv_ms_per_thousand = 0.01
kv_mixed_ms_per_thousand = 0.01
[held_out.decode]
mape_percent = 5.0
[held_out.prefill]
mape_percent = 8.0
[held_out.mixed]
mape_percent = 6.0
"""


def asked(tmp_path, capsys, rows, scenario, weights=0.0, token=0.01):
    """Return what the command says of (second, prompt, output, blocks) rows under a scenario's sections."""
    trace = tmp_path / "trace.jsonl"
    keys = ("timestamp", "input_length", "output_length", "hash_ids")
    trace.write_text("".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows))
    (tmp_path / "set.toml").write_text(SET.format(weights=weights, token=token))
    replica = "replica: {step_time: set.toml}\n" if "replica" not in scenario else ""
    (tmp_path / "s.yaml").write_text(f"trace: {{path: trace.jsonl}}\n{replica}{scenario}")
    run = str(tmp_path / "run")
    assert kvsim(["simulate", "-c", str(tmp_path / "s.yaml"), "-o", run, "-q"]) == 0
    capsys.readouterr()
    assert kvsim(["explain", run, "--sensitivity", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert kvsim(["explain", run, "--sensitivity"]) == 0
    return found, capsys.readouterr().out
