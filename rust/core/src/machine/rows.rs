//! Rows of finished requests and of events, packed as they leave.

use super::request::{Request, MOST_TIERS};

/// Places in `STATUSES` of `metrics/columns.py`.
const FINISHED: i64 = 0;
const ABORTED: i64 = 2;

/// What a column of the request's table holds; the names are those of `metrics/columns.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Request,
    Machine,
    DecodeMachine,
    Session,
    Turn,
    Conversational,
    Status,
    Outcome,
    ArrivalNs,
    ClientNs,
    QueueNs,
    LookupNs,
    FetchNs,
    FetchRoomNs,
    /// For KV from a tier.
    FetchFromNs(usize),
    /// Until KV had come up from a tier.
    StallFromNs(usize),
    PrefillNs,
    BatchStallNs,
    FirstDecodeNs,
    FirstTokenNs,
    FinishNs,
    InputTokens,
    OutputTokens,
    CachedTokens,
    CachedFromTokens(usize),
    LeftTokens,
    RecomputedTokens,
    Preemptions,
    HandoverNs,
    HandoverGapNs,
    HandoverRoomNs,
    HandoverBlocks,
    /// Something that does not happen in the core.
    Zero,
}

impl Column {
    /// The column of that name, where KV comes from places of these names: tiers, fast to slow, then other machines.
    fn from_name(name: &str, places: &[String]) -> Self {
        for (level, tier) in places.iter().enumerate().take(MOST_TIERS) {
            // What other machines have lands where KV from further down does.
            let is_remote = level + 1 == places.len();
            let upper = if is_remote {
                1
            } else {
                level.saturating_sub(1)
            };
            if level > 0 && name == format!("fetch_{tier}_ns") {
                return Self::FetchFromNs(level);
            }
            if level > 0 && name == format!("stall_{tier}_{}_ns", places[upper]) {
                return Self::StallFromNs(level);
            }
            if name == format!("cached_{tier}_tokens") {
                return Self::CachedFromTokens(level);
            }
        }
        match name {
            "request" => Self::Request,
            "machine" => Self::Machine,
            "decode_machine" => Self::DecodeMachine,
            "session" => Self::Session,
            "turn" => Self::Turn,
            "is_conversational_turn" => Self::Conversational,
            "status" => Self::Status,
            "outcome" => Self::Outcome,
            "arrival_ns" => Self::ArrivalNs,
            "client_ns" => Self::ClientNs,
            "queue_ns" => Self::QueueNs,
            "lookup_ns" => Self::LookupNs,
            "fetch_ns" => Self::FetchNs,
            "fetch_room_ns" => Self::FetchRoomNs,
            "prefill_ns" => Self::PrefillNs,
            "batch_stall_ns" => Self::BatchStallNs,
            "first_decode_ns" => Self::FirstDecodeNs,
            "first_token_ns" => Self::FirstTokenNs,
            "finish_ns" => Self::FinishNs,
            "input_tokens" => Self::InputTokens,
            "output_tokens" => Self::OutputTokens,
            "cached_prefix_length_used" => Self::CachedTokens,
            "num_tokens_actually_prefilled" => Self::LeftTokens,
            "recomputed_tokens" => Self::RecomputedTokens,
            "preemptions" => Self::Preemptions,
            "handover_ns" => Self::HandoverNs,
            "handover_gap_ns" => Self::HandoverGapNs,
            "handover_room_ns" => Self::HandoverRoomNs,
            "handover_blocks" => Self::HandoverBlocks,
            _ => Self::Zero,
        }
    }
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

/// Rows that have not been handed over yet.
#[derive(Debug)]
pub struct Rows {
    columns: Vec<Column>,
    requests: Vec<i64>,
    events: Vec<i64>,
}

impl Rows {
    /// No rows; `columns` names those of the request's table in their order, `places` those that KV may
    /// come from: tiers, fast to slow, then other machines.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>, places: &[String]) -> Self {
        let columns = columns.into_iter();
        Self {
            columns: columns
                .map(|name| Column::from_name(name, places))
                .collect(),
            requests: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Adds the row of a request that has finished at a time, or, at none, that its client has given up.
    pub(super) fn finish(&mut self, request: &Request, machine: i64, finish_ns: Option<u64>) {
        let arrival = &request.arrival;
        let value = |column: &Column| match column {
            Column::Request => i64::from(arrival.request),
            Column::Machine => request.prefill_machine.unwrap_or(machine),
            Column::DecodeMachine => request.prefill_machine.map_or(-1, |_| machine),
            Column::Session => arrival.session,
            Column::Turn => arrival.turn,
            Column::Conversational => i64::from(arrival.is_conversational_turn),
            Column::Status => finish_ns.map_or(ABORTED, |_| FINISHED),
            Column::Outcome => i64::from(request.outcome),
            Column::ArrivalNs => request.arrival_ns as i64,
            Column::ClientNs => request.client_ns as i64,
            Column::QueueNs => request.queue_ns as i64,
            Column::LookupNs => request.lookup_ns as i64,
            Column::FetchNs => request.fetch_ns() as i64,
            Column::FetchRoomNs => request.fetch_room_ns as i64,
            Column::FetchFromNs(tier) => request.fetch_from_ns[*tier] as i64,
            Column::StallFromNs(tier) => request.stall_from_ns[*tier] as i64,
            Column::PrefillNs => request.prefill_ns as i64,
            Column::BatchStallNs => request.batch_stall_ns as i64,
            Column::FirstDecodeNs => request.first_decode_ns as i64,
            Column::FirstTokenNs => request.first_token_ns.map_or(-1, |ns| ns as i64),
            Column::FinishNs => finish_ns.map_or(-1, |ns| ns as i64),
            Column::InputTokens => arrival.prompt_tokens as i64,
            Column::OutputTokens => arrival.output_tokens as i64,
            Column::CachedTokens => request.cached_tokens as i64,
            Column::CachedFromTokens(tier) => request.cached_from_tokens[*tier] as i64,
            Column::LeftTokens => request.left_tokens as i64,
            Column::RecomputedTokens => request.recomputed_tokens,
            Column::Preemptions => i64::from(request.preemptions),
            Column::HandoverNs => request.handover_ns as i64,
            Column::HandoverGapNs => request.handover_gap_ns as i64,
            Column::HandoverRoomNs => request.handover_room_ns as i64,
            Column::HandoverBlocks => request.handover_blocks as i64,
            Column::Zero => 0,
        };
        self.requests.extend(self.columns.iter().map(value));
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

    /// How many numbers of finished requests' rows wait to be handed over.
    pub fn request_numbers(&self) -> usize {
        self.requests.len()
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
