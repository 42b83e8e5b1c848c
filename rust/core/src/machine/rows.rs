//! Rows of finished requests and of events, packed as they leave.

use super::request::{Request, MOST_TIERS};

/// Places in `STATUSES` of `metrics/columns.py`.
const FINISHED: i64 = 0;
const ABORTED: i64 = 2;

/// The detail of an event that has none: one past the outcomes.
pub(super) const NO_DETAIL: i64 = 5;

/// A request that has left its machine: at a time, or, at none, since its client has given it up.
struct Left<'a> {
    request: &'a Request,
    machine: i64,
    finish_ns: Option<u64>,
}

/// What a column of the request's table says of one; the number is that of the tier that it is about.
type Value = fn(&Left<'_>, usize) -> i64;

/// The column of that name (the names are those of `metrics/columns.py`), where KV comes from places of these names:
/// tiers, fast to slow, then other machines.
fn column(name: &str, sources: &[String]) -> (Value, usize) {
    for (level, tier) in sources.iter().enumerate().take(MOST_TIERS) {
        // What other machines have lands where KV from further down does.
        let is_remote = level + 1 == sources.len();
        let upper = if is_remote {
            1
        } else {
            level.saturating_sub(1)
        };
        if level > 0 && name == format!("fetch_{tier}_ns") {
            return (|of, tier| of.request.fetch_from_ns[tier] as i64, level);
        }
        if level > 0 && name == format!("stall_{tier}_{}_ns", sources[upper]) {
            return (|of, tier| of.request.stall_from_ns[tier] as i64, level);
        }
        if name == format!("cached_{tier}_tokens") {
            return (|of, tier| of.request.cached_from_tokens[tier] as i64, level);
        }
    }
    let value: Value = match name {
        "request" => |of, _| of.request.arrival.request.into(),
        "machine" => |of, _| of.request.prefill_machine.unwrap_or(of.machine),
        "decode_machine" => |of, _| of.request.prefill_machine.map_or(-1, |_| of.machine),
        "session" => |of, _| of.request.arrival.session,
        "turn" => |of, _| of.request.arrival.turn,
        "is_conversational_turn" => |of, _| of.request.arrival.is_conversational_turn.into(),
        "status" => |of, _| of.finish_ns.map_or(ABORTED, |_| FINISHED),
        "outcome" => |of, _| of.request.outcome.into(),
        "arrival_ns" => |of, _| of.request.arrival_ns as i64,
        "client_ns" => |of, _| of.request.client_ns as i64,
        "queue_ns" => |of, _| of.request.queue_ns as i64,
        "lookup_ns" => |of, _| of.request.lookup_ns as i64,
        "fetch_ns" => |of, _| of.request.fetch_ns() as i64,
        "fetch_room_ns" => |of, _| of.request.fetch_room_ns as i64,
        "prefill_ns" => |of, _| of.request.prefill_ns as i64,
        "batch_stall_ns" => |of, _| of.request.batch_stall_ns as i64,
        "first_decode_ns" => |of, _| of.request.first_decode_ns as i64,
        "first_token_ns" => |of, _| time_or_none(of.request.first_token_ns),
        "finish_ns" => |of, _| time_or_none(of.finish_ns),
        "input_tokens" => |of, _| of.request.arrival.prompt_tokens as i64,
        "output_tokens" => |of, _| of.request.arrival.output_tokens as i64,
        "cached_prefix_length_used" => |of, _| of.request.cached_tokens as i64,
        "num_tokens_actually_prefilled" => |of, _| of.request.left_tokens as i64,
        "recomputed_tokens" => |of, _| of.request.recomputed_tokens,
        "preemptions" => |of, _| of.request.preemptions.into(),
        "handover_ns" => |of, _| of.request.handover_ns as i64,
        "handover_gap_ns" => |of, _| of.request.handover_gap_ns as i64,
        "handover_room_ns" => |of, _| of.request.handover_room_ns as i64,
        "handover_blocks" => |of, _| of.request.handover_blocks as i64,
        // Something that does not happen in the core.
        _ => |_, _| 0,
    };
    (value, 0)
}

fn time_or_none(ns: Option<u64>) -> i64 {
    ns.map_or(-1, |ns| ns as i64)
}

/// What an event row is about; the discriminants are places in `EVENT_KINDS` of `metrics/columns.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The prefill of the missed tokens starts.
    PrefillStart = 0,
    /// What a look-up found.
    PrefixCacheEvent = 1,
    /// A request was admitted.
    Admit = 3,
    /// A running request was sent back to the queue.
    Preempt = 4,
    /// The first token is out.
    FirstToken = 5,
    /// The last token is out.
    Finish = 6,
    /// KV was sent to another tier.
    Transfer = 8,
}

/// One row of the event table.
#[derive(Clone, Copy, Debug)]
pub struct EventRow {
    /// What it is about.
    pub kind: EventKind,
    /// When it happened.
    pub time_ns: u64,
    /// Whom it happened to.
    pub request: u32,
    /// Of a look-up: its outcome.
    pub detail: i64,
    /// Of a look-up the cached length, of a prefill its tokens.
    pub tokens: u64,
    /// Of a look-up: tokens left to prefill.
    pub left_tokens: u64,
}

impl EventRow {
    /// An event that happened to a request, without detail and tokens.
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

/// Rows that have not been handed over yet.
#[derive(Debug, Default)]
pub struct Rows {
    columns: Vec<(Value, usize)>,
    requests: Vec<i64>,
    events: Vec<i64>,
}

impl Rows {
    /// No rows; `columns` names those of the request's table in their order, `sources` those that KV may
    /// come from: tiers, fast to slow, then other machines.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>, sources: &[String]) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns.map(|name| column(name, sources)).collect(),
            ..Self::default()
        }
    }

    /// Adds the row of a request that has finished at a time, or, at none, that its client has given up.
    pub(super) fn finish(&mut self, request: &Request, machine: i64, finish_ns: Option<u64>) {
        let left = Left {
            request,
            machine,
            finish_ns,
        };
        let values = self.columns.iter().map(|&(value, tier)| value(&left, tier));
        self.requests.extend(values);
    }

    /// Adds an event: (time, duration, machine, kind, request, detail, tokens, blocks, left).
    pub(super) fn event(&mut self, machine: i64, row: EventRow) {
        self.events.extend([
            row.time_ns as i64,
            0,
            machine,
            row.kind as i64,
            i64::from(row.request),
            row.detail,
            row.tokens as i64,
            0,
            row.left_tokens as i64,
        ]);
    }

    /// Adds a transfer of so many blocks, `detail` naming its edge, from its start to its end.
    pub(super) fn transfer(
        &mut self,
        machine: i64,
        detail: i64,
        blocks: u64,
        (start_ns, end_ns): (u64, u64),
    ) {
        self.events.extend([
            start_ns as i64,
            (end_ns - start_ns) as i64,
            machine,
            EventKind::Transfer as i64,
            -1,
            detail,
            0,
            blocks as i64,
            0,
        ]);
    }

    /// Whether events wait to be handed over.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Hands over the rows of requests.
    pub fn take_requests(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.requests)
    }

    /// Hands over the rows of events; `with` sees them before their room is used again.
    pub fn take_events<T>(&mut self, with: impl FnOnce(&[i64]) -> T) -> T {
        let seen = with(&self.events);
        self.events.clear();
        seen
    }
}
