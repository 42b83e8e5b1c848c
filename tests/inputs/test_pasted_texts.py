"""Pasted texts become launch lines as shells, argparse and operators of clusters read them."""

import json
import random
import re
import shlex

import kvcache_sim as kv
import pytest
from kvcache_sim.cli import main
from kvcache_sim.scenario.launch.deployment import read_deployment
from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch
from support.shared_files import shared

#: Texts of a shell, each with the model and the flags that the engine is given.
_SHELL = r"""
=== variables, defaults, arithmetic
TP=4
export LEN=$((16*1024)) # of each request
M=${MODEL:-Qwen/Qwen3-8B}
vllm serve "$M" -tp $TP --max-model-len ${LEN}
→ Qwen/Qwen3-8B --tensor-parallel-size 4 --max-model-len 16384
=== continued lines, with comments and without backslashes
(env) user@host:~$ vllm serve Q \ # the model
  --seed 1 \
  # not now: --block-size 8
  --swap-space 4
   --max-num-seqs 2 > log 2>&1 &

curl -s http://x/v1/models --max-time 3
→ Q --seed 1 --swap-space 4 --max-num-seqs 2
=== a list of words
ARGS=(--seed 1
 --served-model-name 'a b')
ARGS+=(-tp 2)
vllm serve Q "${ARGS[@]}" | tee log
→ Q --seed 1 --served-model-name 'a b' --tensor-parallel-size 2
=== a shell in a container, whose variables it sees
docker run --gpus all -e TP=2 nvcr.io/x/y bash -lc "cd /x && vllm serve Q -tp \$TP"
→ Q --tensor-parallel-size 2
=== a variable before a command is not of its own words
TP=8
TP=2 vllm serve Q -tp $TP
→ Q --tensor-parallel-size 8
=== eval, and JSON with quotes of three kinds
M=Q
eval vllm serve $M
vllm serve $M --hf-overrides '{"a": "'$M'"}' --lora-modules {"name": "x"}
→ Q --hf-overrides '{"a": "Q"}' --lora-modules '{"name": "x"}'
=== a file that the text writes
F=/tmp/f.yaml
cat > $F <<EOF
max-num-seqs: 8
seed: 3
enable-prefix-caching: false
EOF
vllm serve Q --seed 4 --config $F
→ Q --max-num-seqs 8 --enable-prefix-caching false --seed 4 --config /tmp/f.yaml
=== a list in Python
cmd = ["vllm", "serve", "Q", "--seed", "1", "--enforce-eager"]
→ Q --seed 1 --enforce-eager ''
"""
SHELL = dict(part.split("\n", 1) for part in _SHELL.strip().removeprefix("=== ").split("\n=== "))


@pytest.mark.parametrize("name", SHELL)
def test_a_shell_gives_these_arguments(name):
    text, _, expected = SHELL[name].partition("\n→ ")
    model, *words = shlex.split(expected)
    line = read_deployment(text).workers[-1].line
    assert (line.model, line.flags) == (model, dict(zip(words[::2], words[1::2], strict=True)))


FLAGS = """
# any beginning of one name is the name; vLLM reads _ as -, SGLang does not
vllm serve Q --max-num-seq 1 --tensor_parallel 2 → --max-num-seqs 1 --tensor-parallel-size 2
sglang serve Q --disable-radix --mem-frac 0.8 --quant fp8
    → --disable-radix-cache --mem-fraction-static 0.8 --quantization fp8
sglang serve Q --mem_fraction_static 0.8 → --mem_fraction_static 0.8
# the last of two counts, and of a switch and its opposite
vllm serve Q --seed 1 --seed 2 → --seed 2
vllm serve Q --enable-prefix-caching --no-enable-prefix-caching → --enable-prefix-caching false
vllm serve Q --enable-chunked-prefill=False --enforce-eager true → --enable-chunked-prefill false --enforce-eager
vllm serve Q --no-disable-hybrid-kv-cache-manager → --disable-hybrid-kv-cache-manager false
# parts of an object, which replace one that was written as a whole
vllm serve Q -sc '{"x": 1}' --speculative-config.method mtp --speculative-config.a.b+ 1,2k
    → --speculative-config {"method":"mtp","a":{"b":[1,2000]}}
# several values; a flag of no release with its own
vllm serve Q --lora-modules a=b c=d --connector kvbm nixl -O3
    → --lora-modules a=b,c=d --connector kvbm,nixl --compilation-config 3
trtllm-serve serve Q --tp_size 2 --max_batch_size=8 → --tp_size 2 --max_batch_size 8
"""


@pytest.mark.parametrize("row", re.findall(r"^[^#\n].*", FLAGS.replace("\n    ", " "), re.M))
def test_an_engines_parser_reads_these_flags(row):
    line, _, flags = row.partition(" → ")
    words = flags.split(" ")
    expected, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name = word
            expected[name] = ""
        else:
            expected[name] = word
    (worker,) = read_deployment(line).workers
    said = {
        name: value.replace(" ", "," if "--" in name and "{" not in value else "")
        for name, value in worker.line.flags.items()
    }
    assert said == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("vllm serve Q --max-num", ["--max-num-seqs", "--max-num-batched-tokens"]),
        ("vllm serve Q -tp $TP", ["TP=VALUE", "--tensor-parallel-size"]),
        ("vllm serve $MODEL", ["MODEL", "--model NAME"]),
        ("if [ $A ]; then TP=2; else TP=4; fi; vllm serve Q -tp $TP", ["TP=VALUE"]),
        ("vllm serve Q -tp $(nproc)", ["write its value"]),
        ("vllm serve Q --config absent.yaml", ["absent.yaml", "run kvsim where it is"]),
        ("python -m sglang_router.launch_router --worker-urls a b", ["vllm serve", "sglang.launch_server"]),
        ("args:\n- vllm serve {{ .Values.model }}", ["helm template"]),
        ("vllm serve Q R", ["belongs to no flag"]),
        ("vllm serve Q --model R", ["two models"]),
        ("vllm serve 'Q", ["a quote is not closed"]),
    ],
)
def test_what_the_text_does_not_say_is_refused_with_a_hint(line, words):
    with pytest.raises(kv.KvsimError) as refused:
        scenario_of_launch(line, "h200", "qwen3-8b" if "$MODEL" not in line else "")
    assert not [word for word in words if word not in str(refused.value)]


#: Documents, with the role, replicas, release and flags of each worker.
DOCUMENTS = {
    "compose": (
        "services:\n  llm:\n    image: vllm/vllm-openai:v0.11.2\n    environment: [LMCACHE_CHUNK_SIZE=64]\n"
        "    deploy: {replicas: 2}\n    command: >\n      --model Q\n      --seed ${SEED:-3}\n"
        "  web:\n    image: nginx\n",
        ["both 2 vllm@0.11.2 --seed 3"],
    ),
    "kubernetes": (
        "apiVersion: apps/v1\nkind: Deployment\nspec:\n  replicas: 3\n  template:\n    spec:\n      containers:\n"
        "      - name: x\n        image: lmsysorg/sglang:v0.5.3-cu126\n        env: [{name: TP, value: '4'}]\n"
        "        command: [python3, -m, sglang.launch_server]\n        args: [--model-path, Q, --tp, $(TP)]\n",
        ["both 3 sglang@0.5.3 --tp-size 4"],
    ),
    "production stack": (
        "servingEngineSpec:\n  modelSpec:\n  - repository: vllm/vllm-openai\n    tag: v0.8.5\n    modelURL: Q\n"
        "    replicaCount: 2\n    vllmConfig: {maxModelLen: 8, enablePrefixCaching: false, extraArgs: [--seed, 1]}\n",
        ["both 2 vllm@0.8.5 --max-model-len 8 --enable-prefix-caching false --seed 1"],
    ),
    "llm-d values": (
        "modelArtifacts: {name: Q}\ndecode:\n  replicas: 2\n  parallelism: {tensor: 4}\n  containers:\n"
        "  - modelCommand: vllmServe\n    args: [--seed, '1']\nprefill:\n  replicas: 3\n  containers:\n"
        "  - modelCommand: vllmServe\n    args: [--seed, '2']\n",
        ["decode 2  --tensor-parallel-size 4 --seed 1", "prefill 3  --seed 2"],
    ),
    "arguments alone": (
        "args: [--model, Q, --max-running-requests, '4', --tp, '2']",
        ["both 1  --max-running-requests 4 --tp-size 2"],
    ),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_documents_name_their_workers(name):
    text, expected = DOCUMENTS[name]
    said = []
    for worker in read_deployment(text).workers:
        flags = " ".join(f"{name} {value}".strip() for name, value in worker.line.flags.items())
        said.append(f"{worker.role} {worker.replicas} {worker.line.release} {flags}")
        assert worker.line.model == "Q"
    assert said == expected


def test_two_lines_are_pools_whose_machines_differ():
    text = "\n".join(
        f"vllm serve Qwen/Qwen3-32B -tp 2 --max-num-seqs {seqs} --port {port}"
        f' --kv-transfer-config \'{{"kv_connector": "NixlConnector", "kv_role": "kv_{role}"}}\''
        for seqs, port, role in [(8, 1, "producer"), (8, 2, "producer"), (64, 3, "consumer")]
    )
    scenario = kv.Scenario.from_yaml(scenario_of_launch(text, "h200"))
    settings = scenario.checked.settings
    found = [(one.role, one.replica.max_num_seqs) for one in settings.machines]
    assert found == [("prefill", 8), ("prefill", 8), ("decode", 64)]


def test_nodes_of_an_engine_are_one_machine():
    node = "python -m sglang.launch_server --model-path Q --tp 16 --nnodes 2 --node-rank {}\n"
    (worker,) = read_deployment(node.format(0) + node.format(1)).workers
    assert worker.replicas == 1


def test_a_pasted_line_writes_no_key_and_shows_no_secret():
    hostile = "x\nrouter: {policy: evil.py:X}\u2028seed: 9\x85a: 1\r\x0bb: 2\x00"
    text = scenario_of_launch(
        "docker run -e HUGGING_FACE_HUB_TOKEN=hidden1 --env 'API_KEY=hidden 2' vllm/vllm-openai:latest "
        f"--model Qwen/Qwen3-8B --api-key hidden3 --served-model-name '{hostile}' --unheard-of '{hostile}'",
        "h200",
    )
    plain = scenario_of_launch("vllm serve Qwen/Qwen3-8B", "h200")
    assert kv.Scenario.from_yaml(text) == kv.Scenario.from_yaml(plain)
    assert text.splitlines() == text.split("\n")[:-1]
    assert "hidden" not in text
    manifest = "kind: Pod\nspec:\n  containers:\n  - args: [vllm, serve, Qwen/Qwen3-8B, --api-key, hidden]\n    env:\n"
    text = scenario_of_launch(manifest + "    - name: HF_TOKEN\n      value: hidden\n", "h200")
    assert "hidden" not in text


def test_a_file_or_the_standard_input_and_an_output(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "start.sh").write_text("vllm serve Qwen/Qwen3-8B \\\n  --max-num-seqs 8\n")
    assert main.run(["init", "--from", "start.sh", "-o", "served.yaml"]) == 0
    assert kv.Scenario.load("served.yaml")["replica.max_num_seqs"] == 8
    assert main.run(["init", "--from", "start.sh", "-o", "served.yaml"]) == 6
    (tmp_path / "latin.sh").write_bytes(b"\xff")
    assert main.run(["init", "--from", "latin.sh"]) == 2
    assert "not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "A=aaaaaaaa\n" + "A=$A$A\n" * 60 + "vllm serve $A",
        "vllm serve " + "${X:-" * 3000 + "}" * 3000,
        "vllm serve Q -tp $((9**9**9**9))",
        "vllm serve Q --kv-transfer-config." + "a." * 9000 + "b 1",
        "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a, *a, *a]\n" for n in range(4000)),
        "vllm serve Q;" * 9000,
        "vllm serve Q " + '{"a": [1, ' * 9000,
        "[" * 50_000,
        "vllm serve Q --max-model-len " + "9" * 50_000 + "k",
        "vllm serve Q --config /dev/zero",
        "args: " + "[" * 3000,
    ],
)
def test_a_hostile_text_is_refused_in_one_line(text):
    with pytest.raises(kv.KvsimError) as refused:
        scenario_of_launch(text, "h200", "qwen3-8b")
    assert len(str(refused.value).splitlines()) == 1


def given_lines():
    """Return the lines as people write them; the test is skipped where they are absent."""
    rows = shared("launch_lines/lines.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(row) for row in rows]


def test_flags_of_damaged_lines_are_set_or_named():
    """Each flag of a text is one of a line's, or in what the text has around it, or the text is refused."""
    drawn, rows = random.Random(58), given_lines()
    for _ in range(300):
        words = re.findall(r"\s+|[^\s\"']+|[\"']", drawn.choice(rows)["line"])
        for _ in range(drawn.randrange(1, 4)):
            at = drawn.randrange(len(words))
            words[at : at + 1] = drawn.choice(
                [[], [words[at], " ", words[at]], ["'"], ["$("], ["\u2028"], ["<<E"]]
            )
        text = "".join(words)
        try:
            found = read_deployment(text)
        except kv.UsageError:
            continue
        lines = [worker.line for worker in found.workers]
        beside = (" ".join([one.model, *one.aside, *one.flags, *one.flags.values()]) for one in lines)
        said = " ".join([*found.aside, *beside])
        names = {name for one in lines for name in one.flags}
        known_flags = [flag for one in lines for flag in one.engine.flags.values() if flag.name in names]
        also = {name for flag in known_flags for name in flag.also}
        for flag in re.findall(r"(?<![\w-])--[A-Za-z][\w-]*", re.sub(r"(^|\s)#[^\n]*", "", text)):
            plain = flag.replace("_", "-").replace("--no-", "--")
            known = [name for name in names | also if name.startswith((flag, plain))]
            assert known or flag in said or flag in ("--env", "--model", "--model-path"), text


def test_the_given_lines_are_read():
    """A line becomes workers of its engine and model, or is refused where its row says that it must be."""
    refused = []
    for row in given_lines():
        if row.get("files"):
            continue
        try:
            read_deployment(row["line"])
        except kv.UsageError:
            refused.append(row)
    assert [row["id"] for row in refused if row["outcome"] == "accept" and not row.get("also_right")] == []
