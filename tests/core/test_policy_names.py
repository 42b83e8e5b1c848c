"""A policy of every kind comes from a file, a module or an entry point, named in YAML or by --set alone."""

import json
from pathlib import Path

import pytest
from kvcache_sim.base.errors import KvsimError, UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.policies.plugins.load import load_plugin
from kvcache_sim.policies.resolve import parse_variant, resolve_policy
from kvcache_sim.scenario.load import load_scenario, scenario_from_text
from kvcache_sim.scenario.policy_kinds import POLICY_KINDS
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.simulation import simulate
from support import own_plugins
from support.product.scenarios import to_yaml
from support.tiered_scenario import BASE

RAILS = """
channels:
  left: {bandwidth: 1GB/s, edges: [cpu->gpu]}
  right: {bandwidth: 1GB/s, edges: [cpu->gpu]}
"""


def sent(run, channel: str) -> int:
    return sum(
        n for k, n in run.counters.items() if k.startswith(f"channel.{channel}") and k.endswith(".bytes")
    )


def total(run, column: str) -> int:
    return int(run.requests[column].sum())


def share_of_cpu(own, plain):
    return total(own, "cached_cpu_tokens") == 0 < total(plain, "cached_cpu_tokens")


def bytes_up(own, plain):
    return 0 < sent(own, "cpu-to-gpu") < sent(plain, "cpu-to-gpu")


def prefetches(own, plain):
    return own.counters["prefetched_blocks"] > 0


def keeps_less(own, plain):
    return total(own, "cached_prefix_length_used") < total(plain, "cached_prefix_length_used")


def waits_longer(own, plain):
    return own.requests["queue_ns"].max() > plain.requests["queue_ns"].max()


def machine_1_only(own, plain):
    return set(own.requests["machine"]) == {1}


def decodes_on_the_last(own, plain):
    return set(own.requests["decode_machine"]) == {3} < set(plain.requests["decode_machine"])


def right_only(own, plain):
    return sent(own, "left") == 0 < sent(own, "right")


def three_machines(own, plain):
    return set(own.requests["machine"]) == {0, 1, 2}


#: Key → the plug-in of ``own_plugins``, and its effect on the figures of the plain run.
KINDS = {
    "write.policy": ("Write(how='never', flags=(False, False, False))", share_of_cpu),
    "fetch.policy": ("Fetch(how='half')", bytes_up),
    "prefetch.policy": ("Prefetch(how='most', occasions=('queued', 'session'))", prefetches),
    "cache.admission": ("Admission(how='half')", keeps_less),
    "replica.queue_order": ("Queue(how='newest')", waits_longer),
    "router.policy": ("Router(how='most')", machine_1_only),
    "handover.router": ("Router(how='most')", decodes_on_the_last),
    "channel_choice": ("Channel(how='most')", right_only),
    "fleet.scaling.policy": ("Scaling", three_machines),
}


#: Kinds that need a scenario of their own: what it names where the plug-in is not.
PLAIN = {"channel_choice": "emptiest", "handover.router": "least-loaded"}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(Path(own_plugins.__file__).read_text())
    return tmp_path


def run(text: str, *overrides: str, directory: Path | None = None):
    scenario = scenario_from_text(text, "s.yaml", directory or Path.cwd(), overrides)
    return scenario, simulate(scenario.settings, read_requests(scenario))


def text_of(key: str, value: str) -> str:
    """Return the base scenario with one more key in it."""
    if key == "handover.router":
        base = BASE.replace("machines: 2", "machines: 4")
        return base + f"pools: {{prefill: 2, decode: 2}}\nhandover: {{router: {value}}}\n"
    section, _, name = key.partition(".")
    if key == "fleet.scaling.policy":
        return BASE + f"fleet: {{scaling: {{policy: {value}, interval: 1s}}}}\n"
    line = f"{section}: {{{name}: {value}}}\n" if name else f"{section}: {value}\n"
    base = "\n".join(row for row in BASE.splitlines() if not row.startswith(f"{section}:"))
    kept = [row for row in BASE.splitlines() if row.startswith(f"{section}: {{")]
    if kept:  # keep what the base says of the same section
        line = kept[0].replace("{", f"{{{name}: {value}, ", 1) + "\n"
    return base + "\n" + line + (RAILS if key == "channel_choice" else "")


def test_every_kind_has_a_row_here():
    assert set(KINDS) == {".".join(map(str, key)) for key in POLICY_KINDS}


@pytest.mark.parametrize("key", KINDS)
def test_a_policy_of_each_kind_comes_from_a_file_named_in_yaml(key, own, tmp_path_factory):
    name, effect = KINDS[key]
    text = text_of(key, f'"own.py:{name}"')
    scenario, mine = run(text, directory=own)
    plain = run(text_of(key, PLAIN[key]) if key in PLAIN else BASE)[1]
    assert effect(mine, plain)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    again = run(to_yaml(scenario.resolved), directory=elsewhere)[1]
    assert again.digest_results == mine.digest_results, "the resolved scenario finds the file again"


@pytest.mark.parametrize("key", KINDS)
def test_a_policy_of_each_kind_is_set_from_the_command_line(key, own, monkeypatch):
    monkeypatch.chdir(own)
    name, effect = KINDS[key]
    text = text_of(key, PLAIN[key]) if key in PLAIN else BASE
    plain, mine = run(text)[1], run(text, f"{key}=own.py:{name}", directory=Path("/"))[1]
    assert effect(mine, plain)


def test_a_policy_of_one_machine_and_of_one_edge(own, monkeypatch):
    monkeypatch.chdir(own)
    settings = run(BASE, "machines[1].replica.queue_order=own.py:Queue", "write.policy.cpu=own.py:Write")[
        0
    ].settings
    assert settings.machines[0].replica.queue_order == "fcfs"
    assert settings.machines[1].replica.queue_order == f"{own}/own.py:Queue"
    assert settings.movement.write == {"gpu": "back", "cpu": f"{own}/own.py:Write"}


def test_a_module_and_an_entry_point_name_a_policy(own, monkeypatch):
    monkeypatch.syspath_prepend(str(own))
    (own / "own-1.dist-info").mkdir()
    (own / "own-1.dist-info" / "METADATA").write_text("Name: own\nVersion: 1\n")
    (own / "own-1.dist-info" / "entry_points.txt").write_text("[kvsim.fetch]\nhalf = own:Fetch\n")
    names = (f"{own}/own.py:Fetch", "own:Fetch", "half")
    assert len({run(BASE, f"fetch.policy={name}")[1].digest_results for name in names}) == 1


def test_an_unknown_name_lists_the_known_ones_of_its_kind():
    for key, kind in POLICY_KINDS.items():
        with pytest.raises(UsageError) as refused:
            run(BASE, f"{'.'.join(map(str, key))}=no-such-thing")
        assert all(name in str(refused.value) for name in kind.names)
    with pytest.raises(KvsimError, match="not found"):
        run(BASE, "fetch.policy=nowhere.py:Half")


def test_the_command_lists_every_kind(capsys):
    assert kvsim(["policies", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["other_kinds"]
    assert {name: tuple(row["names"]) for name, row in listed.items()} == {
        ".".join(map(str, key)): kind.names for key, kind in POLICY_KINDS.items()
    }


@pytest.mark.parametrize(
    ("text", "family", "variant"),
    [
        ("lru", "prefix", "lru"),
        ("ttl:300s", "prefix", "ttl:300s"),
        ("sglang:lru", "sglang", "lru"),
        ("vllm", "vllm", ""),
        ("sglang-unified:tlru:4096:256", "sglang-unified", "tlru:4096:256"),
        *((name, "plugin", name) for name in ("a.py:B", "vllm:a.py:B", "vllm:m:N", "m:N", "p.m:N(a=1)")),
        ("libcachesim:f.py", "plugin", "libcachesim:f.py"),
        *((name, None, "") for name in ("vllm:lru", "lru2", "1m:N", "m:1", "a:b:c")),
    ],
)
def test_a_name_is_a_row_a_row_with_a_setting_or_a_plug_in(text, family, variant):
    if family is None:
        with pytest.raises(UsageError, match="policy"):
            resolve_policy(text)
    else:
        assert resolve_policy(text) == (family, variant)


@pytest.mark.parametrize("text", ["", "()", "( )", "(a=1, b='x)')"])
def test_arguments_are_literals_by_name(text):
    assert load_plugin(f"collections:Counter{text}").arguments == ({"a": 1, "b": "x)"} if "a" in text else {})


@pytest.mark.parametrize("text", ["(1)", "(a=b)", "(a=)", "(a=1)(b=2)", "(**{'a': 1})", "(a=1, a=2)"])
def test_other_arguments_are_refused(text):
    with pytest.raises(UsageError, match="arguments"):
        load_plugin(f"collections:Counter{text}")


@pytest.mark.parametrize(("text", "blocks"), [("1", 1 / 16), ("32768", 2048)])
def test_a_context_of_attention_is_a_number_of_tokens(text, blocks):
    assert parse_variant(f"pgdsf:{text}", 16).attention_blocks == blocks


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("0-1024=90@30s, 1024-=20", [(0, 64, 90, 30 * 10**9), (64, 2**32 - 1, 20, None)]),
        ("0-1=100", [(0, 1, 100, None)]),
        ("1-17=0", [(1, 2, 0, None)]),
    ],
)
def test_ranges_of_priorities_hold_the_blocks_that_begin_in_them(text, ranges):
    assert [*map(tuple, parse_variant(f"priority:{text}", 16).ranges)] == ranges


@pytest.mark.parametrize("setting", ["1-16=0", "0-0=5", "0-16=101", "16-=5,", "5"])
def test_other_ranges_are_refused(setting):
    with pytest.raises(UsageError, match="not understood"):
        parse_variant(f"priority:{setting}", 16)


@pytest.mark.parametrize("setting", ["0", "-1", "", "1.5"])
def test_other_contexts_are_refused(setting):
    with pytest.raises(UsageError, match="tokens"):
        parse_variant(f"pgdsf:{setting}", 16)


def test_a_scenario_file_names_a_plugin_in_its_directory(own, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    (own / "s.yaml").write_text(BASE + 'fetch: {policy: "own.py:Fetch"}\n')
    assert load_scenario(own / "s.yaml").settings.movement.fetch == f"{own}/own.py:Fetch"
