"""``kvsim models``: list, show, capacity, new."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kvcache_sim.cli.catalogue import AsJson, Force, Name, NewName, print_rows, write_template
from kvcache_sim.cli.verb import verb_app

app = verb_app("List models, show what one weighs and keeps, or start a model file.")


@app.command("list")
def list_models(as_json: AsJson = False) -> None:
    """List the packaged models, and the architectures whose config.json is read.

    \b
    Examples:
      kvsim models list
    """
    from kvcache_sim.model.hugging_face.architectures import ARCHITECTURES
    from kvcache_sim.model.model_file import load_model, model_names

    models = [load_model(name) for name in model_names()]
    if as_json:
        rows = [
            {
                "name": model.name,
                "layers": model.layers,
                "params_total": model.params_total,
                "params_active": model.params_active,
                "kv_bytes_per_token": model.kv_bytes_per_token,
                "source": model.source,
            }
            for model in models
        ]
        typer.echo(json.dumps({"models": rows, "architectures": sorted(ARCHITECTURES)}, indent=2))
        return
    print_rows(
        {
            model.name: (
                f"{model.params_total / 1e9:7.1f}B ({model.params_active / 1e9:.1f}B a token), "
                f"{model.kv_bytes_per_token:,} bytes of KV a token"
            )
            for model in models
        }
    )
    typer.echo(
        "\nIn a run: --set replica.step_time=roofline:qwen3-32b@h200:tp2; measured: kvsim step-times list"
    )
    typer.echo("Your own: model: ./config.json (Hugging Face) or my.toml; see kvsim models new")
    typer.echo("Architectures of a config.json: " + " ".join(sorted(ARCHITECTURES)))


@app.command()
def show(
    name: Name,
    tensor_parallel: Annotated[int, typer.Option("--tp", help="GPUs that share it", min=1)] = 1,
    kv_dtype: Annotated[str, typer.Option("--kv-dtype", help="KV cache's format; the model's if none")] = "",
    length: Annotated[
        list[int] | None, typer.Option("--length", help="tokens of a sequence; repeatable", min=1)
    ] = None,
    gpu: Annotated[str, typer.Option("--gpu", help="show the KV capacity of this GPU")] = "",
    utilization: Annotated[
        float | None,
        typer.Option(
            "--gpu-memory-utilization", help="share that vLLM takes; its own if none", min=0.01, max=1
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a model's layers, its weights, the KV of one sequence on one GPU, and the KV capacity.

    \b
    Examples:
      kvsim models show deepseek-v3 --tp 8
      kvsim models show ./config.json --tp 4 --kv-dtype fp8 --length 128000
      kvsim models show gpt-oss-20b --gpu h100
    """
    from kvcache_sim.report.model_sheet import Asked, model_sheet, sheet_text

    asked = Asked(tensor_parallel, kv_dtype, tuple(length or (1024, 8192, 131_072)), gpu, utilization)
    sheet = model_sheet(name, asked)
    typer.echo(json.dumps(sheet, indent=2) if as_json else sheet_text(sheet))


@app.command()
def capacity(
    context: typer.Context,
    name: Name,
    gpu: Annotated[str, typer.Option("--gpu", help="name or file")],
    release: Annotated[
        str, typer.Option(help="such as vllm@0.26.0 or sglang@0.5.9; the log's, else the newest if none")
    ] = "",
    tensor_parallel: Annotated[int | None, typer.Option("--tp", help="GPUs that share it", min=1)] = None,
    pipeline_parallel: Annotated[int | None, typer.Option("--pp", help="pipeline stages", min=1)] = None,
    data_parallel: Annotated[
        int | None, typer.Option("--dp", help="ranks with a share of experts", min=1)
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(help="most sequences of vLLM's batch", min=1)] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(help="token budget; SGLang's chunk", min=1)
    ] = None,
    max_model_len: Annotated[
        int | None, typer.Option(help="longest request; the model's if none", min=1)
    ] = None,
    gpu_memory_utilization: Annotated[
        float | None, typer.Option(help="vLLM's share", min=0.01, max=1)
    ] = None,
    mem_fraction_static: Annotated[float | None, typer.Option(help="SGLang's share", min=0.01, max=1)] = None,
    kv_cache_memory_bytes: Annotated[
        int | None, typer.Option(help="vLLM's KV, in place of all", min=1)
    ] = None,
    graphs_gib: Annotated[
        float | None, typer.Option(help="vLLM's printed estimate of CUDA graphs", min=-10, max=1000)
    ] = None,
    weights: Annotated[str, typer.Option(help="format of the weights; the model's if none")] = "",
    kv_dtype: Annotated[str, typer.Option(help="KV cache's format; the model's if none")] = "",
    from_log: Annotated[
        str, typer.Option(help="a server's startup log to compare with", metavar="FILE")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show what an engine's release leaves for KV on each GPU: each term of its sum, and what its log says.

    \b
    Examples:
      kvsim models capacity qwen3-32b --gpu h100 --tp 2
      kvsim models capacity llama-3.1-8b --gpu h100 --release vllm@0.11.0 --max-model-len 16384
      kvsim models capacity qwen3-8b --gpu b200 --release sglang@0.5.10.post1 --json
    """
    from kvcache_sim.report.capacity_sheet import Asked, capacity_sheet, capacity_text

    given = context.params.items()
    options = {option: value for option, value in given if type(value) in (int, float)}
    sheet = capacity_sheet(Asked(name, gpu, options, release, kv_dtype, weights, from_log))
    typer.echo(json.dumps(sheet, indent=2) if as_json else capacity_text(sheet))


@app.command()
def new(
    name: NewName,
    start: Annotated[str, typer.Option("--from", help="a model by name or file")] = "llama-3.1-8b",
    force: Force = False,
) -> None:
    """Write a model file to edit.

    \b
    Examples:
      kvsim models new mine --from ./config.json
      kvsim models show mine.toml
    """
    from kvcache_sim.model.model_file import names_model_file, packaged_name
    from kvcache_sim.model.templates import new_model
    from kvcache_sim.report.plain_table import next_line
    from kvcache_sim.scenario.launch.names import draft_of

    is_known = names_model_file(start) or packaged_name(start)
    path = write_template(name, force, lambda: ("" if is_known else draft_of(start)) or new_model(start))
    typer.echo(next_line("models", "show", path))
