"""Absolute paths of the files that a scenario's settings name."""

from __future__ import annotations

from pathlib import Path

from kvcache_sim.scenario.yaml_tree import Path as KeyPath
from kvcache_sim.scenario.yaml_tree import Tree


def absolute(directory: Path, name: str) -> str:
    """Return the absolute path of ``name`` relative to ``directory``; ``-`` (standard input) stays."""
    return name if name == "-" else str((directory / name).absolute())


def setting_file(tree: Tree, path: KeyPath, directory: Path, name: str) -> str:
    """Return the absolute path of a file that the setting at ``path`` names.

    Args:
        tree: The settings with the location of each.
        path: The setting, such as ``("replica", "step_time")``.
        directory: The folder of the scenario.
        name: The file as it is written.

    Returns:
        The file of the current folder if ``--set`` names it and it exists there, else that of ``directory``.
    """
    here = tree.location(path).startswith("--set") and (Path.cwd() / name).exists()
    return absolute(Path.cwd() if here else directory, name)
