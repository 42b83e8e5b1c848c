"""The command line: one file a verb, listed once here and imported only when used.

- ``main``       the entry point: finds the verb, runs it, and turns errors into a line and an exit code
- ``called``     a line of ``kvsim`` from Python
- ``declared``   options of verbs and their groups; a plain line is read without typer. ``verb``: typer's apps
- ``commands``   every verb and subcommand as typer's parser sees it
- ``run_options``, ``replay_options``, ``cells``  options that several verbs take
- ``former``       former spellings of options; ``notices``: warnings and notes on stderr
- ``progress``, ``sweep_progress``, ``reading``  live lines of progress
- ``intervals``  the intervals of ``simulate``: when they are computed
- ``calibrate_host``  ``calibrate host``
- ``catalogue``  functions of ``models``, ``gpus``, ``step-times`` and ``channels``
"""

from __future__ import annotations

#: Verbs that were dropped, each with its successor.
DROPPED = {
    "study": "dropped in 0.2: 'kvsim sweep --grid' varies settings, 'kvsim cachesim' has the upper bounds",
}

#: Verbs that may import plug-ins, since they simulate, replay or check; for all others their names are text.
#: ``explain`` and ``reproduce`` run a finished run again with ``--plugins`` alone.
LOADS_PLUGINS = {
    *("simulate", "serve", "sweep", "capacity", "optimize", "compare"),
    *("cachesim", "curve", "shadow", "policies"),
}

#: verb → (module, one line of help). A verb's module defines ``app``: typer's, made by
#: ``cli.verb.verb_app``, with one command or with subcommands,
#: or a ``cli.declared.Verb``. A command returns None, or the exit code.
VERBS: dict[str, tuple[str, str]] = {
    "simulate": ("kvcache_sim.cli.simulate", "replay a trace or a generated workload over the tiers"),
    "serve": ("kvcache_sim.cli.serve", "answer OpenAI's clients from the simulated cluster, in real time"),
    "record": ("kvcache_sim.cli.record", "pass requests on to a server and write a trace of them"),
    "shadow": ("kvcache_sim.cli.shadow", "follow an engine's KV events: its hit rate against other caches'"),
    "init": ("kvcache_sim.cli.init", "print a scenario to start from, or of an engine's launch line"),
    "report": ("kvcache_sim.cli.report", "make one HTML page of finished runs"),
    "timeline": ("kvcache_sim.cli.timeline", "write a run as a trace that Perfetto opens"),
    "compare": ("kvcache_sim.cli.compare", "compare runs or scenarios, with 95 % intervals"),
    "explain": ("kvcache_sim.cli.explain", "explain the main causes of a run's results"),
    "sweep": ("kvcache_sim.cli.sweep", "run many configurations, here or on a cluster"),
    "capacity": (
        "kvcache_sim.cli.capacity",
        "find the highest rate that holds an SLO, and the cheapest design",
    ),
    "optimize": ("kvcache_sim.cli.optimize", "search for the best settings that meet conditions"),
    "reproduce": ("kvcache_sim.cli.reproduce", "run a finished run again and compare digests"),
    "doctor": ("kvcache_sim.cli.doctor", "check this installation"),
    "plot": ("kvcache_sim.cli.plot", "draw one picture of finished runs"),
    "calibrate": ("kvcache_sim.cli.calibrate", "fit step times to measurements; compare a run with reality"),
    "cachesim": ("kvcache_sim.cli.cachesim", "replay a trace against one cache: hits, evictions, why misses"),
    "curve": ("kvcache_sim.cli.curve", "print the hit rate at every cache size, from one pass"),
    "session": ("kvcache_sim.cli.session", "show what agents' sessions read, write and cost at a provider"),
    "policies": ("kvcache_sim.cli.policies", "list, show, write and check eviction policies"),
    "models": ("kvcache_sim.cli.models", "list models, show what one weighs and keeps, start a file"),
    "gpus": ("kvcache_sim.cli.gpus", "list GPUs, show one's figures, start a file"),
    "step-times": ("kvcache_sim.cli.step_times", "list sources of step times, show some steps, start a file"),
    "channels": ("kvcache_sim.cli.channels", "list presets of links, show one, start a file"),
    "releases": ("kvcache_sim.cli.releases", "list engines' releases, show one's defaults, compare two"),
    "completion": ("kvcache_sim.cli.completion", "print a shell's completion of verbs and options"),
    "help": ("kvcache_sim.cli.help", "explain a verb or a topic: metrics, glossary, scenario, units, …"),
    "trace": (
        "kvcache_sim.cli.trace",
        "work with traces: check, stats, convert, generate, tokens, transforms",
    ),
}
