//! Rows of finished requests and of events, packed as they leave.

use super::request::{Request, MOST_TIERS};
use crate::convert::fit;

/// Status of a request that has left; the discriminants are indices in `STATUSES` of `metrics/columns.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It got its last token.
    Finished = 0,
    /// Its client has aborted it.
    Aborted = 2,
    /// The queue was full when it came.
    TurnedAway = 4,
}

/// Code of an event without detail: one more than the largest outcome.
pub(super) const NO_DETAIL: i64 = 5;

/// A request that has left its machine, and its finish time if it has finished.
struct Left<'a> {
    request: &'a Request,
    machine: i64,
    finish_ns: Option<u64>,
    ended: Ended,
}

/// Value of a column of the request's table for one request; the number is the tier of the column.
type Value = fn(&Left<'_>, usize) -> i64;

/// The column of that name (the names are those of `metrics/columns.py`). `sources` names the sources of KV: tiers,
/// fast to slow, then other machines.
fn column(name: &str, sources: &[String]) -> (Value, usize) {
    for (level, tier) in sources.iter().enumerate().take(MOST_TIERS) {
        // Blocks of other machines are received by the tier that staged blocks go to.
        let is_remote = level + 1 == sources.len();
        let upper = if is_remote {
            1
        } else {
            level.saturating_sub(1)
        };
        if level > 0 && name == format!("fetch_{tier}_ns") {
            return (
                |of, tier| fit::<i64>(of.request.ttft.fetch_from_ns[tier]),
                level,
            );
        }
        if level > 0 && name == format!("stall_{tier}_{}_ns", sources[upper]) {
            return (
                |of, tier| fit::<i64>(of.request.stalls.from_ns[tier]),
                level,
            );
        }
        if name == format!("cached_{tier}_tokens") {
            return (
                |of, tier| fit::<i64>(of.request.cached.from_tokens[tier]),
                level,
            );
        }
    }
    let value: Value = match name {
        "request" => |of, _| of.request.arrival.request.into(),
        "machine" => |of, _| of.request.handover.prefill_machine.unwrap_or(of.machine),
        "decode_machine" => |of, _| {
            of.request
                .handover
                .prefill_machine
                .map_or(-1, |_| of.machine)
        },
        "session" => |of, _| of.request.arrival.session,
        "turn" => |of, _| of.request.arrival.turn,
        "is_conversational_turn" => |of, _| of.request.arrival.is_conversational_turn.into(),
        "status" => |of, _| of.ended as i64,
        "outcome" => |of, _| of.request.cached.outcome.into(),
        "arrival_ns" => |of, _| fit::<i64>(of.request.arrival_ns),
        "client_ns" => |of, _| fit::<i64>(of.request.ttft.client_ns),
        "queue_ns" => |of, _| fit::<i64>(of.request.ttft.queue_ns),
        "lookup_ns" => |of, _| fit::<i64>(of.request.ttft.lookup_ns),
        "fetch_ns" => |of, _| fit::<i64>(of.request.ttft.fetch_ns()),
        "fetch_room_ns" => |of, _| fit::<i64>(of.request.ttft.fetch_room_ns),
        "prefill_ns" => |of, _| fit::<i64>(of.request.ttft.prefill_ns),
        "batch_stall_ns" => |of, _| fit::<i64>(of.request.stalls.batch_ns),
        "first_decode_ns" => |of, _| fit::<i64>(of.request.ttft.first_decode_ns),
        "first_token_ns" => |of, _| time_or_none(of.request.generated.first_token_ns),
        "finish_ns" => |of, _| time_or_none(of.finish_ns),
        "input_tokens" => |of, _| fit::<i64>(of.request.arrival.prompt_tokens),
        "output_tokens" => |of, _| fit::<i64>(of.request.arrival.output_tokens),
        "cached_prefix_length_used" => |of, _| fit::<i64>(of.request.cached.tokens),
        "num_tokens_actually_prefilled" => |of, _| fit::<i64>(of.request.cached.left_tokens),
        "recomputed_tokens" => |of, _| of.request.cached.recomputed_tokens,
        "preemptions" => |of, _| of.request.scheduling.preemptions.into(),
        "handover_ns" => |of, _| fit::<i64>(of.request.ttft.handover_ns),
        "handover_gap_ns" => |of, _| fit::<i64>(of.request.handover.gap_ns),
        "handover_room_ns" => |of, _| fit::<i64>(of.request.handover.capacity_wait_ns),
        "handover_blocks" => |of, _| fit::<i64>(of.request.handover.blocks),
        // Columns that the core never fills.
        _ => |_, _| 0,
    };
    (value, 0)
}

fn time_or_none(ns: Option<u64>) -> i64 {
    ns.map_or(-1, |ns| fit::<i64>(ns))
}

/// Type of an event row; the discriminants are indices in `EVENT_KINDS` of `metrics/columns.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The prefill of the missed tokens starts.
    PrefillStart = 0,
    /// Result of a look-up.
    PrefixCacheEvent = 1,
    /// A request was admitted.
    Admit = 3,
    /// A running request was sent back to the queue.
    Preempt = 4,
    /// The first token is generated.
    FirstToken = 5,
    /// The last token is generated.
    Finish = 6,
    /// KV was sent to another tier.
    Transfer = 8,
}

/// One row of the event table.
#[derive(Clone, Copy, Debug)]
pub struct EventRow {
    /// Type of the event.
    pub kind: EventKind,
    /// Time of the event.
    pub time_ns: u64,
    /// Request of the event.
    pub request: u32,
    /// Outcome of a look-up.
    pub detail: i64,
    /// Cached tokens of a look-up, or the tokens of a prefill.
    pub tokens: u64,
    /// Tokens left to prefill after a look-up.
    pub left_tokens: u64,
}

impl EventRow {
    /// An event of a request, without detail and tokens.
    pub fn of(kind: EventKind, time_ns: u64, request: u32) -> Self {
        Self {
            kind,
            time_ns,
            request,
            detail: NO_DETAIL,
            tokens: 0,
            left_tokens: 0,
        }
    }
}

/// Rows that have not been taken yet.
#[derive(Debug, Default)]
pub struct Rows {
    columns: Vec<(Value, usize)>,
    requests: Vec<i64>,
    events: Vec<i64>,
}

impl Rows {
    /// An empty set of rows. `columns` names the columns of the request's table in their order, `sources` the sources
    /// of KV: tiers, fast to slow, then other machines.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>, sources: &[String]) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns.map(|name| column(name, sources)).collect(),
            ..Self::default()
        }
    }

    /// Adds the row of a request that has left its machine at `at_ns`.
    pub(super) fn ended(&mut self, request: &Request, machine: i64, ended: Ended, at_ns: u64) {
        let finish_ns = Some(at_ns).filter(|_| ended == Ended::Finished);
        let sums = finish_ns.is_none_or(|at_ns| request.adds_up(at_ns));
        debug_assert!(sums, "I6 or I8: {request:?}");
        let left = Left {
            request,
            machine,
            finish_ns,
            ended,
        };
        let values = self.columns.iter().map(|&(value, tier)| value(&left, tier));
        self.requests.extend(values);
    }

    /// Adds an event: (time, duration, machine, kind, request, detail, tokens, blocks, left).
    pub(super) fn event(&mut self, machine: i64, row: EventRow) {
        self.events.extend([
            fit::<i64>(row.time_ns),
            0,
            machine,
            row.kind as i64,
            i64::from(row.request),
            row.detail,
            fit::<i64>(row.tokens),
            0,
            fit::<i64>(row.left_tokens),
        ]);
    }

    /// Adds a transfer of `blocks` blocks from its start to its end; `detail` is the number of its edge, `request` the
    /// one that it loads for, −1 for none.
    pub(super) fn transfer(
        &mut self,
        machine: i64,
        request: i64,
        detail: i64,
        blocks: u64,
        start_ns: u64,
        end_ns: u64,
    ) {
        self.events.extend([
            fit::<i64>(start_ns),
            fit::<i64>(end_ns - start_ns),
            machine,
            EventKind::Transfer as i64,
            request,
            detail,
            0,
            fit::<i64>(blocks),
            0,
        ]);
    }

    /// True if event rows are waiting to be taken.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the rows of requests.
    pub fn take_requests(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.requests)
    }

    /// Takes the rows of events; `with` reads them before their memory is reused.
    pub fn take_events<T>(&mut self, with: impl FnOnce(&[i64]) -> T) -> T {
        let seen = with(&self.events);
        self.events.clear();
        seen
    }
}
