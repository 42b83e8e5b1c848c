"""``kvsim help metrics`` and ``glossary`` say every figure and word; shells complete verbs and options."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from kvcache_sim.cli import VERBS, main
from kvcache_sim.metrics.figures import FIGURES
from kvcache_sim.metrics.glossary import ALSO, WORDS
from kvcache_sim.replay.miss_causes import MISS_CAUSES


@pytest.mark.parametrize("topic", ["metrics", "glossary"])
def test_a_page_fits_the_terminal(topic, capsys):
    assert main.run(["help", topic]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80 + 20  # names alone may be longer


def test_metrics_have_unit_definition_and_other_names(capsys):
    assert main.run(["help", "metrics"]) == 0
    out = capsys.readouterr().out
    joined = " ".join(out.split())
    for figure in FIGURES:
        assert f"\n{figure.name}" in out
        assert " ".join(figure.meaning.split()) in joined
        assert not figure.unit or f"{figure.name} [{figure.unit}]" in out
    assert set(ALSO) <= {figure.name for figure in FIGURES}
    assert "also: vllm:time_to_first_token_seconds" in out


def test_the_glossary_has_its_words(capsys):
    assert main.run(["help", "glossary"]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = [line for line in lines[1:] if line and not line.startswith(" ")]
    assert words == sorted(WORDS, key=str.lower)


def completed(script: str, *words: str) -> list[str]:
    line = " ".join(f"'{word}'" for word in words)
    code = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _kvsim; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_verbs_options_and_subcommands(capsys):
    assert main.run(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    assert set(completed(script, "kvsim", "")) == set(VERBS)
    assert completed(script, "kvsim", "sim") == ["simulate"]
    assert completed(script, "kvsim", "simulate", "--schedule") == ["--schedule-digests"]
    assert completed(script, "kvsim", "trace", "st") == ["stats"]
    assert "--requests" in completed(script, "kvsim", "trace", "generate", "--re")
    assert completed(script, "kvsim", "curve", "--given", "--by") == ["--by-session"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_verb(shell, capsys):
    assert main.run(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert all(verb in out for verb in VERBS)
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", "/dev/stdin"], input=out, text=True, check=False).returncode == 0


def test_help_knows_every_public_name(capsys):
    """Keys with their values, options, figures, columns, outcomes, policies and the entries of catalogs."""
    names = set()
    for line in (Path(__file__).parents[2] / "docs/data/public-names.txt").read_text().splitlines():
        kind, _, rest = line.partition(": ")
        if kind != "kvcache_sim":  # Python's own help is of these
            words = re.sub(r" (= .*|\[.*)", "", rest).split(" (")[0].split()
            names.add(words[-1].removesuffix(":") if kind != "column" else rest.split(".")[1].split(":")[0])
            names |= set(re.findall(r"[\w-]+", (re.findall(r"\(([^)]* \| [^)]*)\)", rest) or [""])[0]))
    names |= {cause.name.replace("_", " ") for cause in MISS_CAUSES}
    assert len(names) > 900
    unknown = []
    for name in sorted(names):
        if main.run(["help", "--", name]) != 0:
            unknown.append(name)
    assert unknown == []


def test_a_word_narrows_a_page(capsys):
    assert main.run(["help", "metrics", "tpot"]) == 0
    out = capsys.readouterr().out
    assert "latency.tpot.<statistic> [ms]" in out
    assert len(out.splitlines()) < 12
    assert main.run(["help", "metrics", "nonesuch"]) == 2
    assert main.run(["help", "units", "GB"]) == 2
