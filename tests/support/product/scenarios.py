"""Names of scenarios and verbs for tests of several folders."""
# ruff: noqa: F401

from kvcache_sim.cli.commands import commands
from kvcache_sim.cli.verb import typer_app
from kvcache_sim.scenario.cost import cost_of
from kvcache_sim.scenario.execute import store
from kvcache_sim.scenario.load import varied_from_text
from kvcache_sim.scenario.presets import preset_names, preset_path
from kvcache_sim.scenario.resolved import to_yaml
from kvcache_sim.scenario.yaml_tree import Tree
