"""A fleet on a clock: what it forgets, and the logs of arrivals and lags that are written as requests end."""

import asyncio
import json

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from kvcache_sim.extras.live.arrivals import LAG_COLUMNS, ArrivalLog
from kvcache_sim.extras.live.fleet import Prompt
from kvcache_sim.extras.live.ticket import Ticket
from kvcache_sim.metrics.run_directory import open_run_directory
from live_fleets import fleet_of, wait
from support.examples import examples


def test_a_long_run_forgets_ids_of_requests_that_are_gone_and_stays_the_same():
    """More than 16,384 ids have come, on a GPU of 120 blocks."""

    async def go(count: int) -> tuple[int, int, list[int]]:
        fleet, sizes = fleet_of(["tiers.gpu.capacity=120 blocks"]), []
        fleet.start()
        tickets = []
        for n in range(count):
            tickets.append(fleet.submit(Prompt([n % 1000] * 1600, [1] * 2)))
            wait(fleet, 10**9)
            sizes.append(len(fleet.blocks))
        return max(sizes), sizes[-1], [ticket.cached_tokens for ticket in tickets]

    most, least, cached = asyncio.run(go(230))
    assert 16_000 < most < 17_500
    assert least < 9_000
    assert set(cached) == {0}


@examples(40)
@given(st.data())
def test_rows_and_lags_are_logged_in_order_of_arrival_once_all_before_have_left(tmp_path_factory, data):
    open_rows: dict[int, Ticket] = {}
    rows, left = list[dict[str, object]](), set[int]()
    with open_run_directory(tmp_path_factory.mktemp("t") / "run", force=False) as directory:
        log = ArrivalLog(file := directory.rows("arrivals.jsonl"), directory.table("lag", LAG_COLUMNS))

        def logged() -> list[str]:
            if not file.closed:
                file.flush()
            return (directory.part / "arrivals.jsonl").read_text().splitlines()

        def leave(number: int) -> None:
            log.closed(open_rows.pop(number), None, 0)
            left.add(number)
            assert len(logged()) == next((n for n in range(len(rows)) if n not in left), len(rows))

        for number in range(data.draw(st.integers(0, 8))):
            at_ns, inputs, outputs = (data.draw(st.integers(1, 10**8)) for _ in range(3))
            ids = data.draw(st.lists(st.integers(0, 9), max_size=3))
            gone_ns = data.draw(st.none() | st.just(0) | st.integers(0, 10**8))
            ticket = open_rows[number] = Ticket(number, at_ns, inputs, outputs)
            log.arrived(ticket, ids)
            row = {"timestamp": at_ns / 1e6, "input_length": inputs, "output_length": outputs}
            row |= {"hash_ids": ids, "named_length": inputs + outputs}
            if gone_ns is not None:
                log.on_abort(ticket, at_ns + gone_ns)
                row["abort_after"] = gone_ns / 1e6
            rows.append(row)
            for gone in data.draw(st.lists(st.sampled_from(sorted(open_rows)), unique=True, max_size=2)):
                leave(gone)
        for number in data.draw(st.permutations(sorted(open_rows))):
            leave(number)
        log.close()
        assert [json.loads(line) for line in logged()] == rows
        assert log.requests == len(rows)
        assert pq.read_table(directory.part / "lag.parquet")["request"].to_pylist() == list(range(len(rows)))


def test_the_lags_of_the_last_answers_wait_for_their_clients(tmp_path):
    """Of 1,500 answers those of the first 512 are written during the run."""
    with open_run_directory(tmp_path / "run", force=False) as directory:
        log = ArrivalLog(directory.rows("arrivals.jsonl"), directory.table("lag", LAG_COLUMNS))
        tickets = [Ticket(number, number, 1, 2) for number in range(1500)]
        for ticket in tickets:
            log.arrived(ticket, [])
            log.closed(ticket, None, 0)
        tickets[511].late(4)  # written already
        for ticket in tickets[512:]:
            ticket.late(7)
            ticket.late(9 + ticket.number)
        log.close()
        table = pq.read_table(directory.part / "lag.parquet").to_pydict()
    assert table["first_token_lag_ns"] == [-1] * 512 + [7] * 988
    assert table["worst_token_lag_ns"] == [0] * 512 + [9 + number for number in range(512, 1500)]
