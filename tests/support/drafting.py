"""Settings of drafts, at random."""

from dataclasses import replace

from support.clusters import table


def drafting(settings, speculation, **replica):
    machines = (
        replace(m, step_time=table(4096, 300), replica=replace(m.replica, speculation=speculation, **replica))
        for m in settings.machines
    )
    return replace(settings, machines=tuple(machines))
