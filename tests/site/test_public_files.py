"""Files of a public project: sizes of README and CHANGELOG, placeholders of addresses, workflows and issue forms."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[2]
GITHUB = ROOT / ".github"
PLACEHOLDERS = GITHUB / "placeholders.md"
YAML_FILES = [*sorted(GITHUB.rglob("*.yml")), ROOT / "CITATION.cff"]


def test_the_changelog_has_versions_with_dates_and_known_kinds_of_changes():
    text = (ROOT / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## (.*)$", text, re.M)
    assert heads[0] == "[Unreleased]"
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", head) for head in heads[1:])
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", text, re.M)) <= kinds


@pytest.mark.parametrize(
    ("page", "row", "quoted"),
    [
        (
            "README.md",
            "own iterations, dense",
            "TTFT {} % too low at low load and {} % too low near capacity",
        ),
        ("docs/start/size-a-cluster.md", "roofline, dense |", "TTFT was {1} % too low"),
    ],
)
def test_errors_that_pages_quote_are_those_of_the_page_on_trust(page, row, quoted):
    trust = (ROOT / "docs" / "understand" / "trust.md").read_text()
    [line] = [line for line in trust.splitlines() if line.startswith(f"| {row}")]
    low, near = (abs(round(float(cell.replace("−", "-")))) for cell in line.split("|")[3].split(";"))
    assert quoted.format(low, near) in (ROOT / page).read_text().replace("\n", " ")


def test_each_placeholder_is_listed_with_the_files_that_have_it():
    listed = dict(re.findall(r"^\| `([A-Z-]+)` \| [^|]+ \| (.*) \|$", PLACEHOLDERS.read_text(), re.M))
    assert listed
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    pages = [ROOT / name for name in tracked.splitlines() if name.endswith((".md", ".cff", ".toml", ".yml"))]
    for name, files in listed.items():
        found = {str(page.relative_to(ROOT)) for page in pages if name in page.read_text()}
        assert found - {str(PLACEHOLDERS.relative_to(ROOT))} == set(re.findall(r"`([^`]+)`", files))


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.name)
def test_files_of_a_public_host_are_yaml_with_what_it_needs(path):
    content = YAML(typ="safe").load(path.read_text())
    if path.parent.name == "workflows":
        assert {"name", "on", "permissions", "jobs"} <= set(content)
        assert all({"runs-on", "timeout-minutes", "steps"} <= set(job) for job in content["jobs"].values())
    elif path.parent.name == "ISSUE_TEMPLATE" and path.stem != "config":
        assert {"name", "description", "body"} <= set(content)


def test_a_workflow_runs_the_projects_own_check():
    assert "run: .ci/run" in (GITHUB / "workflows" / "ci.yml").read_text()
    assert "run: make fuzz" in (GITHUB / "workflows" / "fuzz.yml").read_text()
    wheels = (GITHUB / "workflows" / "wheels.yml").read_text()
    assert all(name in wheels for name in ("linux-x86_64", "linux-aarch64", "macos"))


def test_actions_of_workflows_are_pinned_by_commit():
    used = [
        line
        for path in (GITHUB / "workflows").glob("*.yml")
        for line in re.findall(r"uses: (.*)$", path.read_text(), re.M)
    ]
    assert len(used) >= 10
    assert [line for line in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v[\d.]+", line)] == []


LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


def pinned(lock: Path) -> dict[str, list[Requirement]]:
    """Return the requirements of a lock by name; each has a version and hashes."""
    found: dict[str, list[Requirement]] = {}
    for line in lock.read_text().replace(" \\\n    ", " ").splitlines():
        if not line.startswith("#"):
            wanted, *hashes = line.split(" --hash=sha256:")
            assert hashes, f"{lock.name}: {wanted} without a hash"
            assert all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes)
            requirement = Requirement(wanted)
            assert [part.operator for part in requirement.specifier] == ["=="]
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS = PROJECT["project"]["optional-dependencies"] | PROJECT["dependency-groups"]


@pytest.mark.parametrize(
    ("lock", "groups"),
    [
        ("tests.txt", sorted(set(GROUPS) - {"audit", "fuzz", "wheels"})),
        ("wheel.txt", ["report"]),
        ("wheel-lowest.txt", []),
        ("wheels.txt", ["wheels"]),
        ("audit.txt", ["audit"]),
        ("fuzz.txt", ["fuzz"]),
    ],
)
def test_a_lock_has_what_the_project_asks_for(lock, groups):
    own = [] if lock in ("wheels.txt", "audit.txt", "fuzz.txt") else PROJECT["project"]["dependencies"]
    held = pinned(ROOT / "requirements" / lock)
    for text in own + [one for group in groups for one in GROUPS[group]]:
        asked = Requirement(text)
        for version in held[canonicalize_name(asked.name)]:
            [exact] = version.specifier
            assert asked.specifier.contains(exact.version, prereleases=True), f"{text}: `make lock`"


def test_each_lock_has_hashes_and_is_audited():
    assert len(LOCKS) == 7
    assert all(pinned(lock) for lock in LOCKS)
    recipe = (ROOT / "Makefile").read_text().partition("\naudit:")[2].partition("\n\n")[0]
    assert "cargo-deny check" in recipe
    assert "for lock in tests wheel wheels audit fuzz;" in recipe
    assert "--strict" in recipe
    assert "run: make audit" in (GITHUB / "workflows" / "supply-chain.yml").read_text()
