"""``kvsim policies``: list, show, new, check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kvcache_sim.cli.declared import Argument, Option
from kvcache_sim.cli.verb import verb_app

app = verb_app("List eviction policies, show one, write a new one, or check one.")

AsJson = Annotated[bool, Option("--json", help="print JSON")]


@app.command("list")
def list_policies(as_json: AsJson = False) -> None:
    """List every policy with its paper, the plug-ins of installed packages, and policies of other kinds.

    \b
    Examples:
      kvsim policies list
      kvsim policies list --json
    """
    from kvcache_sim.policies.plugins.load import entry_point_names
    from kvcache_sim.policies.table import POLICIES
    from kvcache_sim.scenario.policy_kinds import POLICY_KINDS

    kinds = {".".join(map(str, key)): kind for key, kind in POLICY_KINDS.items()}
    if as_json:
        rows = [
            {
                "name": r.name,
                "kind": r.kind,
                "description": r.description,
                "paper": r.paper,
                "setting": r.setting.form if r.setting else None,
            }
            for r in POLICIES
        ]
        others = {key: {"names": kind.names, "entry_points": kind.offered()} for key, kind in kinds.items()}
        body = {"policies": rows, "entry_points": entry_point_names(), "other_kinds": others}
        typer.echo(json.dumps(body, indent=2))
        return
    width = max(len(row.name) for row in POLICIES)
    for row in POLICIES:
        setting = f"; {row.setting.example}" if row.setting else ""
        typer.echo(f"{row.name:<{width}}  {row.description}{setting} ({row.paper})")
    for name in entry_point_names():
        typer.echo(f"{name:<{width}}  plug-in of an installed package")
    typer.echo("\nYour own: --policy file.py:Name or pkg.mod:Name; start one with kvsim policies new NAME")
    typer.echo("\nPolicies of other kinds, by the key that names them; each also takes file.py:Name:")
    width = max(map(len, kinds))
    for key, kind in kinds.items():
        typer.echo(f"{key:<{width}}  {' | '.join((*kind.names, *kind.offered()))}")


@app.command()
def show(
    name: Annotated[str, Argument(help="as kvsim policies list has it", metavar="NAME")],
) -> None:
    """Show a policy: its rule, its setting and its paper.

    \b
    Examples:
      kvsim policies show sieve
    """
    from kvcache_sim.policies.definition import definition_of

    typer.echo(definition_of(name))


@app.command()
def new(
    name: Annotated[str, Argument(help="such as two-queue", metavar="NAME")],
    output: Annotated[Path, Option("-o", "--output", metavar="DIR", help="folder to write to")] = Path(),
    force: Annotated[bool, "replace existing files"] = False,
) -> None:
    """Write a policy to start from, and its test.

    \b
    Examples:
      kvsim policies new two-queue
      kvsim policies check two_queue.py:TwoQueue
    """
    from kvcache_sim.base.errors import UsageError
    from kvcache_sim.base.output import refuse_existing, write_new
    from kvcache_sim.policies.plugins.template import skeleton
    from kvcache_sim.report.plain_table import next_line

    files = skeleton(name)
    if not output.is_dir():
        raise UsageError("no such folder", where="--output", got=str(output))
    for file in (files.policy_file, files.test_file):
        refuse_existing(output / file, force)
    write_new(output / files.policy_file, files.policy.encode(), force)
    write_new(output / files.test_file, files.test.encode(), force)
    typer.echo(f"wrote {output / files.policy_file} and {output / files.test_file}")
    typer.echo(next_line("policies", "check", f"{output / files.policy_file}:{files.class_name}"))


@app.command()
def check(
    policy: Annotated[str, Argument(help="file.py:Name, pkg.mod:Name, entry point", metavar="POLICY")],
    seed: Annotated[int, Option(help="seed of the random traces", min=0)] = 0,
    rounds: Annotated[int, Option(help="random traces", min=1, max=100_000)] = 40,
    as_json: AsJson = False,
) -> None:
    """Fuzz a policy against the engine's rules and compare it with LRU and Belady.

    \b
    Examples:
      kvsim policies check two_queue.py:TwoQueue
      kvsim policies check two_queue.py:TwoQueue --rounds 500
    """
    from dataclasses import asdict

    from kvcache_sim.replay.policy_check import check_policy

    report = check_policy(policy, seed, rounds)
    if as_json:
        body = {
            "policy": report.plugin.name,
            "source_sha256": report.plugin.source_sha256,
            "rounds": report.rounds,
            "n_requests": report.requests,
            "refusals": report.refusals,
            "comparisons": [asdict(row) for row in report.comparisons],
        }
        typer.echo(json.dumps(body, indent=2))
        return
    typer.echo(f"{report.plugin.name}: rules kept in {report.rounds} traces, {report.requests:,} requests")
    typer.echo("  blocks  policy     lru  belady   (hit rate of blocks on the built-in trace)")
    for row in report.comparisons:
        typer.echo(f"{row.capacity_blocks:>8,}  {row.policy:6.2%}  {row.lru:6.2%}  {row.belady:6.2%}")
