"""The order of events, and the time before which nothing happens but machines' own work."""

from kvcache_sim.engine import ARRIVAL, BOUNDARY, TRANSFER, Engine


def test_own_events_take_their_turn_among_all():
    engine, reported = Engine(2), []
    engine.schedule(5, BOUNDARY, 0, reported.append, "boundary")
    engine.schedule_own(5, TRANSFER, 1, reported.append, "own transfer")
    engine.schedule(5, ARRIVAL, -1, reported.append, "arrival")
    engine.schedule_own(5, BOUNDARY, 1, reported.append, "own boundary")
    engine.cancel(engine.schedule_own(4, BOUNDARY, 1, reported.append, "taken back"))
    assert not engine.idle
    assert engine.run()
    assert reported == ["own transfer", "arrival", "boundary", "own boundary"]
    assert (engine.idle, engine.processed) == (True, 4)


def test_others_are_who_else_acts_or_who_stops_the_clock():
    engine, seen = Engine(2), []

    def look(_: object) -> None:
        seen.append(engine.others_ns)

    engine.schedule_own(3, BOUNDARY, 0, look)
    engine.schedule_own(8, BOUNDARY, 0, look)
    engine.schedule(20, ARRIVAL, -1, lambda _: None)
    assert not engine.run(until_ns=10)
    assert seen == [11, 11]
    engine.schedule_own(12, BOUNDARY, 0, look)
    engine.schedule_own(25, BOUNDARY, 0, look)
    assert engine.run()
    assert seen[2:] == [20, 25], "the next of the others; now, where none is left"


def test_a_silenced_machine_receives_no_events():
    engine, notified = Engine(2), []
    for machine in (0, 1):
        for schedule in (engine.schedule, engine.schedule_own):
            schedule(5, BOUNDARY, machine, notified.append, machine)
    engine.silence(0)
    engine.schedule(7, BOUNDARY, 0, notified.append, 0)
    assert engine.run()
    assert notified == [1, 1]
