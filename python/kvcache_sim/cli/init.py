"""``kvsim init``: a commented scenario to start from, or the scenario of an engine's launch line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.scenario.launch.to_line import Launch

app = verb_app()


@app.command()
def init(
    launch: Annotated[str, typer.Option("--from", metavar="LINE", help="an engine's launch line")] = "",
    gpu: Annotated[
        str, typer.Option(help="with --from: the GPU (kvsim gpus list); the line's, else h100 if none")
    ] = "",
    model: Annotated[str, typer.Option(help="with --from: the model, where its name is not known")] = "",
    flags: Annotated[
        Path | None,
        typer.Option("--flags", metavar="RUN", help="a run or scenario as an engine's launch line"),
    ] = None,
    engine: Annotated[str, typer.Option(help="with --flags: vllm or sglang")] = "vllm",
    preset: Annotated[
        str, typer.Option("--preset", metavar="NAME", help="a scenario that comes along, such as quickstart")
    ] = "",
) -> None:
    """Print a commented scenario to start from, that of a deployment, or a scenario's launch line.

    \b
    Examples:
      kvsim init > my.yaml
      kvsim init --preset cpu-offload > my.yaml
      kvsim init --from 'vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128' > served.yaml
      kvsim init --from 'python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2' --gpu h200
      kvsim init --flags runs/1-run-3fa9c1 --engine sglang
    """
    asked = {"--from": bool(launch), "--flags": flags is not None, "--preset": bool(preset)}
    if sum(asked.values()) > 1:
        raise UsageError("one at a time", where=", ".join(name for name, given in asked.items() if given))
    if preset:
        from kvcache_sim.scenario.presets import preset_path

        typer.echo(preset_path(preset, "--preset").read_text(encoding="utf-8"), nl=False)
        return
    if flags is not None:
        made = _launch(flags, engine)
        typer.echo(made.line)
        for setting in made.without_flag:
            typer.echo(f"no flag of {engine}: {setting}", err=True)
    elif launch:
        from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch

        typer.echo(scenario_of_launch(launch, gpu, model), nl=False)
    else:
        from kvcache_sim.scenario.presets import starter_text

        typer.echo(starter_text(), nl=False)


def _launch(source: Path, engine: str) -> Launch:
    from kvcache_sim.scenario.launch.to_line import launch_of_scenario
    from kvcache_sim.scenario.load import load_scenario, read_scenario, scenario_of_run

    if source.is_dir():
        scenario = scenario_of_run(read_scenario(source / "scenario.yaml", regular=True), source)
    else:
        scenario = load_scenario(source)
    return launch_of_scenario(scenario.resolved, engine)
