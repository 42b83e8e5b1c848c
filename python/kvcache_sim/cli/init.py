"""``kvsim init``: a commented scenario to start from, or the scenario of an engine's launch line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kvcache_sim.base.errors import UsageError
from kvcache_sim.cli.declared import Option
from kvcache_sim.cli.verb import verb_app

if TYPE_CHECKING:
    from kvcache_sim.scenario.launch.to_line import Launch

app = verb_app()


@app.command()
def init(
    launch: Annotated[
        str, Option("--from", metavar="LINE", help="an engine's launch line, or a FILE with one; - is stdin")
    ] = "",
    gpu: Annotated[str, "with --from: the GPU (kvsim gpus list); the line's, else h100 if none"] = "",
    model: Annotated[str, "with --from: the model, where its name is not known"] = "",
    flags: Annotated[
        Path | None, Option(metavar="RUN", help="a run or scenario as an engine's launch line")
    ] = None,
    engine: Annotated[str, "with --flags: vllm or sglang"] = "vllm",
    preset: Annotated[
        str, Option(metavar="NAME", help="a scenario that comes along, such as quickstart")
    ] = "",
    output: Annotated[
        Path | None, Option("-o", "--output", metavar="FILE", help="write there instead of printing")
    ] = None,
    force: Annotated[bool, "overwrite the file"] = False,
) -> None:
    """Print a commented scenario to start from, that of a deployment, or a scenario's launch line.

    \b
    Examples:
      kvsim init > my.yaml
      kvsim init --preset cpu-offload > my.yaml
      kvsim init --from 'vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128' > served.yaml
      kvsim init --from 'python -m sglang.launch_server --model-path Qwen/Qwen3-32B --tp 2' --gpu h200
      kvsim init --from compose.yaml -o served.yaml
      kubectl get deployment served -o yaml | kvsim init --from - --gpu h200
      kvsim init --flags runs/1-run-3fa9c1 --engine sglang
    """
    asked = {"--from": bool(launch), "--flags": flags is not None, "--preset": bool(preset)}
    if sum(asked.values()) > 1:
        raise UsageError("one at a time", where=", ".join(name for name, given in asked.items() if given))
    if preset:
        from kvcache_sim.scenario.presets import preset_path

        _say(preset_path(preset, "--preset").read_text(encoding="utf-8"), output, force)
    elif flags is not None:
        made = _launch(flags, engine)
        _say(f"{made.line}\n", output, force)
        for setting in made.without_flag:
            typer.echo(f"no flag of {engine}: {setting}", err=True)
    elif launch:
        from kvcache_sim.scenario.launch.pasted import read_pasted
        from kvcache_sim.scenario.launch.to_scenario import scenario_of_launch

        _say(scenario_of_launch(read_pasted(launch), gpu, model), output, force)
    else:
        from kvcache_sim.scenario.presets import starter_text

        _say(starter_text(), output, force)


def _say(text: str, output: Path | None, force: bool) -> None:
    """Print a text, or write it to a file."""
    from kvcache_sim.base.output import write_new

    if output is None:
        typer.echo(text, nl=False)
        return
    write_new(output, text.encode(), force)
    typer.echo(f"wrote {output}", err=True)


def _launch(source: Path, engine: str) -> Launch:
    from kvcache_sim.scenario.launch.to_line import launch_of_scenario
    from kvcache_sim.scenario.load import load_scenario, read_scenario, scenario_of_run

    if source.is_dir():
        scenario = scenario_of_run(read_scenario(source / "scenario.yaml", regular=True), source)
    else:
        scenario = load_scenario(source)
    return launch_of_scenario(scenario.resolved, engine)
