"""The command with another distribution of the same import name installed: both orders, and its removal."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from kvcache_sim.cli import VERBS

PYTHON = Path(__file__).resolve().parents[2] / "python"
#: Files of the wheel of kvcache-simulator 0.1.3 that this package has too, and one other file.
OTHERS = {
    "kvcache_sim/__init__.py": '"""Another project."""\n__version__ = "0.1.3"\n',
    "kvcache_sim/__main__.py": "raise SystemExit('another command')\n",
    "kvcache_sim/calculator.py": "",
    "kvcache_simulator-0.1.3.dist-info/METADATA": "Name: kvcache-simulator\n",
}


def install_ours(site):
    shutil.copytree(PYTHON, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def install_other(site):
    for name, text in OTHERS.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)


def remove_other(site):
    """Take away what its RECORD names, as pip does: shared files too."""
    for name in OTHERS:
        (site / name).unlink()
    (site / "kvcache_simulator-0.1.3.dist-info").rmdir()


@pytest.fixture
def site(tmp_path):
    return tmp_path / "site-packages"


def kvsim(site, *arguments):
    """Run the entry point as its script does."""
    script = "import sys; from kvsim_launcher import main; sys.argv[0] = 'kvsim'; main()"
    environment = os.environ | {"PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", "-c", script, *arguments]  # without the copy that the tests run
    return subprocess.run(command, env=environment, cwd=site, capture_output=True, text=True, check=False)


def test_alone_it_says_nothing_of_the_other(site):
    install_ours(site)
    done = kvsim(site, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("kvsim ")


@pytest.mark.parametrize("verb", [*VERBS, "--help", "--version"])
def test_the_other_installed_later(site, verb):
    install_ours(site)
    install_other(site)
    done = kvsim(site, verb)
    assert done.returncode == 7
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "kvcache_sim/__init__.py: is another project's, such as kvcache-simulator's" in line
    assert line.endswith(
        "pip uninstall -y kvcache-simulator; pip install --force-reinstall --no-deps kvcache-sim"
    )


def test_the_other_installed_earlier(site):
    install_other(site)
    install_ours(site)
    done = kvsim(site, "--version")
    assert done.returncode == 0
    assert done.stdout.startswith("kvsim ")
    (line,) = done.stderr.splitlines()
    assert line.startswith("warning: kvcache-simulator shares files with kvsim")
    assert "pip uninstall -y kvcache-simulator" in line


@pytest.mark.parametrize("order", [(install_ours, install_other), (install_other, install_ours)])
def test_the_other_removed_again(site, order):
    for install in order:
        install(site)
    remove_other(site)
    done = kvsim(site, "simulate")
    assert done.returncode == 7
    (line,) = done.stderr.splitlines()
    assert "kvcache_sim/__init__.py: is gone, as after removing kvcache-simulator" in line
    assert line.endswith("pip install --force-reinstall --no-deps kvcache-sim")
    install_ours(site)
    assert kvsim(site, "--version").stderr == ""


def test_the_package_gone_whole(site):
    install_ours(site)
    shutil.rmtree(site / "kvcache_sim")
    done = kvsim(site, "simulate")
    assert done.returncode == 7
    assert "kvcache_sim is not installed" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_remedy_names_the_wheel_that_was_installed(site, tmp_path):
    install_ours(site)
    install_other(site)
    wheel = tmp_path / "my wheels" / "kvcache_sim-0.1.0.whl"
    wheel.parent.mkdir()
    wheel.touch()
    notes = site / "kvcache_sim-0.1.0.dist-info"
    notes.mkdir()
    (notes / "METADATA").write_text("Metadata-Version: 2.4\nName: kvcache-sim\nVersion: 0.1.0\n")
    (notes / "direct_url.json").write_text(f'{{"url": "{wheel.as_uri()}", "archive_info": {{}}}}')
    (line,) = kvsim(site, "simulate").stderr.splitlines()
    assert line.endswith(f"pip install --force-reinstall --no-deps '{wheel}'")
    wheel.unlink()
    (line,) = kvsim(site, "simulate").stderr.splitlines()
    assert line.endswith("pip install --force-reinstall --no-deps kvcache-sim")
