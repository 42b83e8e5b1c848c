"""A policy of every kind comes from a file, a module or an entry point, named in YAML or by --set alone."""

import importlib.metadata
import json
import types
from pathlib import Path

import pytest
from kvcache_sim.base.errors import EXIT_INTERNAL, EXIT_USAGE, KvsimError, UsageError
from kvcache_sim.cli.main import run as kvsim
from kvcache_sim.policies.resolve import parse_variant
from kvcache_sim.scenario.load import load_scenario, scenario_from_text
from kvcache_sim.scenario.policy_kinds import POLICY_KINDS
from kvcache_sim.scenario.requests import read_requests
from kvcache_sim.scenario.resolved import to_yaml
from kvcache_sim.simulation import simulate
from support.tiered_scenario import BASE

RAILS = """
channels:
  left: {bandwidth: 1GB/s, edges: [cpu->gpu]}
  right: {bandwidth: 1GB/s, edges: [cpu->gpu]}
"""

OWN = '''
class Nothing:
    """Writes nothing down."""
    writes_back = False
    at_commit = False
    delays_step = False
    def __init__(self, upper, settings):
        pass
    def committed(self, store, lease, blocks, now_ns):
        return None
    used = arrived = lambda self, store, what, now_ns: None

class HalfOf:
    """Fetches a share of what was found."""
    def __init__(self, share=0.5):
        self.share = share
    def reuse(self, plan):
        return plan.ready + int((plan.end - plan.ready) * self.share)

class Everybody:
    """Brings up everything, on both occasions."""
    occasions = ("queued", "session")
    def blocks(self, candidate):
        return candidate.blocks

class FirstTwo:
    """Keeps two blocks of each finished request."""
    def kept_blocks(self, finished):
        return min(2, finished.blocks)

class Newest:
    """Last come, first served."""
    def key(self, waiting):
        return (-waiting.arrival_ns,)

class Second:
    """Sends everything to machine 1."""
    def __init__(self, view):
        pass
    def choose(self, sequence):
        return 1

class Last:
    """Hands everything over to the last machine."""
    def __init__(self, view):
        self.last = len(view.replicas) - 1
    def choose(self, sequence):
        return self.last

class Right:
    """Sends everything over one link."""
    def choose(self, sending, channels):
        return next(name for name in channels if name.startswith("right"))

class Three:
    """Three machines, whatever comes."""
    def __init__(self, settings):
        pass
    def wanted(self, state):
        return 3
'''


def machine_1_only(plain, own):
    return set(own.requests["machine"]) == {1}


def sent(run, channel: str) -> int:
    return sum(
        n for k, n in run.counters.items() if k.startswith(f"channel.{channel}") and k.endswith(".bytes")
    )


def total(run, column: str) -> int:
    return int(run.requests[column].sum())


#: Key → the class in OWN, and its effect on the figures of the plain run.
KINDS = {
    "write.policy": ("Nothing", lambda plain, own: total(own, "cached_cpu_tokens") == 0 < total(plain, "cached_cpu_tokens")),
    "fetch.policy": ("HalfOf(share=0.25)", lambda plain, own: 0 < sent(own, "cpu-to-gpu") < sent(plain, "cpu-to-gpu")),
    "prefetch.policy": ("Everybody", lambda plain, own: own.counters["prefetched_blocks"] > 0),
    "cache.admission": ("FirstTwo", lambda plain, own: total(own, "cached_prefix_length_used") < total(plain, "cached_prefix_length_used")),
    "replica.queue_order": ("Newest", lambda plain, own: own.requests["queue_ns"].max() > plain.requests["queue_ns"].max()),
    "router.policy": ("Second", machine_1_only),
    "handover.router": ("Last", lambda plain, own: set(own.requests["decode_machine"]) == {3} < set(plain.requests["decode_machine"])),
    "channel_choice": ("Right", lambda plain, own: sent(own, "left") == 0 < sent(own, "right")),
    "fleet.scaling.policy": ("Three", lambda plain, own: set(own.requests["machine"]) == {0, 1, 2}),
}  # fmt: skip


#: Kinds that need a scenario of their own: what it names where the plug-in is not.
PLAIN = {"channel_choice": "emptiest", "handover.router": "least-loaded"}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(OWN)
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
    assert effect(plain, mine)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    again = run(to_yaml(scenario.resolved), directory=elsewhere)[1]
    assert again.digest_results == mine.digest_results, "the resolved scenario finds the file again"


@pytest.mark.parametrize("key", KINDS)
def test_a_policy_of_each_kind_is_set_from_the_command_line(key, own, monkeypatch):
    monkeypatch.chdir(own)
    name, effect = KINDS[key]
    text = text_of(key, PLAIN[key]) if key in PLAIN else BASE
    plain, mine = run(text)[1], run(text, f"{key}=own.py:{name}", directory=Path("/"))[1]
    assert effect(plain, mine)


def test_a_policy_of_one_machine_and_of_one_edge(own, monkeypatch):
    monkeypatch.chdir(own)
    settings = run(BASE, "machines[1].replica.queue_order=own.py:Newest", "write.policy.cpu=own.py:Nothing")[
        0
    ].settings
    assert settings.machines[0].replica.queue_order == "fcfs"
    assert settings.machines[1].replica.queue_order == f"{own}/own.py:Newest"
    assert settings.movement.write == {"gpu": "back", "cpu": f"{own}/own.py:Nothing"}


def test_a_module_and_an_entry_point_name_a_policy(own, monkeypatch):
    monkeypatch.syspath_prepend(str(own))
    by_file = run(BASE, f"fetch.policy={own}/own.py:HalfOf")[1]
    by_module = run(BASE, "fetch.policy=own:HalfOf")[1]
    point = importlib.metadata.EntryPoint("half", "own:HalfOf", "kvsim.fetch")
    offered = types.SimpleNamespace(entry_points=lambda group: [point] if group == "kvsim.fetch" else [])
    monkeypatch.setattr("importlib.metadata.entry_points", offered.entry_points)
    monkeypatch.setattr("kvcache_sim.policies.plugins.load.entry_points", offered.entry_points)
    by_entry_point = run(BASE, "fetch.policy=half")[1]
    assert by_file.digest_results == by_module.digest_results == by_entry_point.digest_results


#: What is wrong → (key, text of the file, exit code, words of the line).
BAD = {
    "does not import": ("fetch.policy", "import no_such_module", EXIT_USAGE, "does not import"),
    "syntax error": ("write.policy", "class P(:", EXIT_USAGE, "syntax error"),
    "no such name": ("prefetch.policy", "x = 1", EXIT_USAGE, "no P in this file"),
    "no class": ("cache.admission", "P = 5", EXIT_USAGE, "no class or function"),
    "no method": ("router.policy", "class P: pass", EXIT_USAGE, "it has no choose"),
    "no method, key": ("replica.queue_order", "class P: pass", EXIT_USAGE, "it has no key"),
    "no attribute": ("prefetch.policy", "class P:\n  def blocks(self, c): return 0", EXIT_USAGE, "it has no occasions"),
    "constructor": ("fetch.policy", "class P:\n  def __init__(self, a): pass\n  def reuse(self, p): return 0", EXIT_USAGE, "cannot be made"),
    "wrong answer": ("fetch.policy", "class P:\n  def reuse(self, plan): return 'all'", EXIT_INTERNAL, "reuse gave no usable answer"),
    "too much": ("fetch.policy", "class P:\n  def reuse(self, plan): return plan.end + 1", EXIT_INTERNAL, "expected a whole number from"),
    "too many kept": ("cache.admission", "class P:\n  def kept_blocks(self, f): return -1", EXIT_INTERNAL, "kept_blocks gave no usable answer"),
    "no machine": ("router.policy", "class P:\n  def __init__(self, v): pass\n  def choose(self, s): return 2", EXIT_INTERNAL, "from 0 to 1"),
    "no tuple": ("replica.queue_order", "class P:\n  def key(self, w): return float('nan')", EXIT_INTERNAL, "expected a tuple of numbers"),
    "a flag": ("prefetch.policy", "class P:\n  occasions = ('queued',)\n  def blocks(self, c): return True", EXIT_INTERNAL, "expected a whole number"),
    "no channel": ("channel_choice", "class P:\n  def choose(self, s, c): return 'up'", EXIT_INTERNAL, "the name of one of the channels"),
    "raises": ("fetch.policy", "class P:\n  def reuse(self, plan): return 1 // 0", EXIT_INTERNAL, "reuse raised ZeroDivisionError"),
    "leaves": ("fetch.policy", "class P:\n  def reuse(self, plan): raise SystemExit(0)", EXIT_INTERNAL, "reuse raised SystemExit: 0"),
    "no move": ("write.policy", "class P:\n  writes_back = at_commit = delays_step = False\n  def __init__(self, u, s): pass\n  committed = arrived = lambda self, *a: None\n  def used(self, *a): return 'x'", EXIT_INTERNAL, "the move that the store returned"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_plugin_is_one_line_and_an_exit_code(case, tmp_path, capsys):
    key, text, code, words = BAD[case]
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "s.yaml").write_text(BASE + (RAILS if key == "channel_choice" else ""))
    arguments = ["-c", str(tmp_path / "s.yaml"), "--set", f"{key}={tmp_path}/bad.py:P"]
    assert kvsim(["simulate", *arguments, "--output", str(tmp_path / "out")]) == code
    error = capsys.readouterr().err
    assert words in error
    assert "Traceback" not in error
    assert len(error.removeprefix(f"plug-in: {tmp_path}/bad.py:P\n").splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text",
    [
        "class P:\n  def __init__(self, v): pass\n  def choose(self, s):\n    while True: pass",
        "class P:\n  def __init__(self, v):\n    while True: pass\n  def choose(self, s): return 0",
    ],
)
def test_a_plugin_that_never_returns_is_named(text, tmp_path, capsys, monkeypatch):
    for watch in ("watched", "watching"):
        monkeypatch.setattr(f"kvcache_sim.policies.plugins.watchdog.{watch}.__wrapped__.__defaults__", (0.2,))
    (tmp_path / "bad.py").write_text(text)
    (tmp_path / "s.yaml").write_text(BASE)
    named = f"router.policy={tmp_path}/bad.py:P"
    arguments = ["-c", str(tmp_path / "s.yaml"), "--set", named, "--output", str(tmp_path / "out")]
    assert kvsim(["simulate", *arguments]) == EXIT_INTERNAL
    error = capsys.readouterr().err
    assert "did not return" in error
    assert "bad.py:P" in error
    assert not (tmp_path / "out").exists()


def test_an_unknown_name_lists_the_known_ones_of_its_kind():
    for key, kind in POLICY_KINDS.items():
        with pytest.raises(UsageError, match=r"or file\.py:Name") as refused:
            run(BASE, f"{'.'.join(map(str, key))}=no-such-thing")
        assert all(name in str(refused.value) for name in kind.names)
    with pytest.raises(KvsimError, match="policy file not found"):
        run(BASE, "fetch.policy=nowhere.py:Half")


def test_the_command_lists_every_kind(capsys):
    assert kvsim(["policies", "list"]) == 0
    reported = capsys.readouterr().out
    assert kvsim(["policies", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["other_kinds"]
    for key, kind in POLICY_KINDS.items():
        name = ".".join(map(str, key))
        assert f"{name:<20}  {' | '.join(kind.names)}" in reported
        assert tuple(listed[name]["names"]) == kind.names


def test_a_scenario_file_names_a_plugin_in_its_directory(own, tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    (own / "s.yaml").write_text(BASE + 'fetch: {policy: "own.py:HalfOf"}\n')
    assert load_scenario(own / "s.yaml").settings.movement.fetch == f"{own}/own.py:HalfOf"


@pytest.mark.parametrize(
    ("text", "blocks"), [("1", 1 / 16), ("32768", 2048), ("0", None), ("-1", None), ("", None), ("1.5", None)]
)
def test_a_context_of_attention_is_at_least_a_token(text, blocks):
    if blocks is None:
        with pytest.raises(UsageError, match=r"tokens of context, such as pgdsf:32768"):
            parse_variant(f"pgdsf:{text}", 16)
    else:
        assert parse_variant(f"pgdsf:{text}", 16).attention_blocks == blocks


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("0-1024=90@30s, 1024-=20", [(0, 64, 90, 30 * 10**9), (64, None, 20, None)]),
        ("0-1=100", [(0, 1, 100, None)]),
        ("1-17=0", [(1, 2, 0, None)]),
        ("1-16=0", None),
        ("0-0=5", None),
        ("0-16=101", None),
        ("16-=5,", None),
        ("5", None),
    ],
)
def test_ranges_of_priorities_hold_the_blocks_that_begin_in_them(text, ranges):
    if ranges is None:
        with pytest.raises(UsageError, match="policy setting not understood"):
            parse_variant(f"priority:{text}", 16)
        return
    found = parse_variant(f"priority:{text}", 16).ranges
    assert [(a, end if end < 2**32 - 1 else None, *rest) for a, end, *rest in found] == ranges
