"""Faults that were reported once, each with the tests that would see it again: its own input, or a rule of its own."""

import ast
from functools import cache
from pathlib import Path

import pytest
from plant import faults
from wrong_inputs import table

TESTS = Path(__file__).parent

#: What was typed or written → the test that runs it.
INPUTS = {
    "sweep merge ordered columns by name": "test_limits::test_merged_shards_are_the_whole_sweep_whatever_the_order_of_names",
    "rate_per_s: 1e-11 put every arrival at 0": "test_limits::test_arrivals_beyond_the_clock_are_refused_not_put_at_nought",
    "9999999999999TiB and 9e15 TB": "test_limits::test_quantities_end_where_sums_of_them_would_not_fit",
    "bandwidth: 1 B/s, latency: 1e30 s": "test_limits::test_a_run_whose_clock_would_run_out_says_so",
    "NUL in COMPLETE": "test_limits::test_a_marker_that_names_no_file",
    "NaN or a missing column in a run sealed again": "test_limits::test_a_run_that_was_changed_and_sealed_again_names_what_is_wrong",
    "policies list >&-": "test_limits::test_a_closed_stdout_is_reported",
    "1,000 nested [ in the first row": "test_limits::test_deep_nesting_is_refused_wherever_it_stands",
    "a zstd window beyond memory": "test_limits::test_a_zstandard_window_larger_than_memory_is_refused",
    "no memory": "test_limits::test_no_memory_is_one_line",
    "a 46 KB bomb of one line": "test_limits::test_a_small_file_that_grows_without_a_line_end_is_refused",
    "64 KiB of blank lines before a trace": "test_limits::test_blank_lines_before_a_trace_are_counted_not_the_end_of_it",
    "a cell's path is a directory": "test_limits::test_a_cell_whose_file_is_a_directory_is_set_aside_and_runs_again",
    "six equal runs at once without -o": "test_limits::test_six_equal_runs_at_once_take_six_numbers",
    "CSV fields that begin with =": "test_limits::test_text_that_a_spreadsheet_would_compute_is_text",
}  # fmt: skip
#: Inputs of the list that also stand in the table of wrong inputs, by what of them is typed or written.
TYPED = (
    "9999999999999TiB",
    "9e15 TB",
    "latency: 1e30 s",
    "a[b: 1",
    "kind: [1]",
    "process: []",
    "rate_per_s: 1e-11",
    "[[[[[[[[",
)
#: Rules that live in Python only → the planted fault that breaks each, and the test that was written for it.
RULES = {
    "loads-first order among loads": ("loads go last first", "test_channels"),
    "slots held by loading requests": (
        "a loading request holds no slot",
        "test_scheduler_rules::test_a_loading_request_holds_a_slot",
    ),
    "duplicate_prefill's position": (
        "duplicates looked for one id further",
        "test_scheduler_rules::test_blocks_of_an_id_stand_at_their_ids_position",
    ),
    "TTFT's wait is charged to the disk before the CPU": (
        "a wait is the disk's before it is the cpu's",
        "test_scheduler_rules::test_a_wait_is_the_cpus_until_its_kv_is_here_and_the_disks_only_then",
    ),
    "tokens computed again after a preemption": (
        "what is found after a preemption counts as computed again",
        "test_scheduler_rules::test_tokens_computed_again_are_those_of_the_steps_beyond_the_prompts",
    ),
    "the source is held during a hand-over": ("a hand-over gives its source back as it departs", "test_handover"),
    "the makespan's beginning": ("the makespan begins at nought", "test_summary"),
    "the makespan's end": ("the makespan ends with the last row", "test_summary"),
    "router news due exactly now": ("news that are due now are late", "test_router_index"),
    "a merge that prefers a failed record": ("the last shard wins, failed or not", "test_sweep"),
    "a cell's key without the digests of its inputs": ("a cell does not know its input files", "test_sweep"),
    "one id too many on exact multiples": ("an id too many for whole blocks", "test_generated_workloads"),
}  # fmt: skip


@cache
def functions(name: str) -> set[str]:
    tree = ast.parse((TESTS / f"{name}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("fault", INPUTS)
def test_a_reported_input_has_its_test(fault):
    name, _, function = INPUTS[fault].partition("::")
    assert function in functions(name)


@pytest.mark.parametrize("words", TYPED)
def test_a_reported_input_is_in_the_table(words):
    rows = [row for row in table("typed") if words in row.argv or words in row.text]
    assert rows
    assert all(row.code in (2, 3, 7) for row in rows)


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_its_planted_fault_and_its_test(rule):
    planted, test = RULES[rule]
    name, _, function = test.partition("::")
    (fault,) = (fault for fault in faults() if fault.name == planted)
    assert fault.tests == f"tests/{name}.py"
    assert not function or function in functions(name)
