//! Rows of finished requests and of events, packed as they leave.

use super::request::Request;

/// What a column of the request's table holds; the names are those of `metrics/columns.py`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Request,
    Machine,
    DecodeMachine,
    Session,
    Turn,
    Conversational,
    Outcome,
    ArrivalNs,
    ClientNs,
    QueueNs,
    LookupNs,
    PrefillNs,
    FirstDecodeNs,
    FirstTokenNs,
    FinishNs,
    InputTokens,
    OutputTokens,
    CachedTokens,
    LeftTokens,
    RecomputedTokens,
    Preemptions,
    /// Something that does not happen on a GPU alone.
    Zero,
}

impl Column {
    fn from_name(name: &str) -> Self {
        match name {
            "request" => Self::Request,
            "machine" => Self::Machine,
            "decode_machine" => Self::DecodeMachine,
            "session" => Self::Session,
            "turn" => Self::Turn,
            "is_conversational_turn" => Self::Conversational,
            "outcome" => Self::Outcome,
            "arrival_ns" => Self::ArrivalNs,
            "client_ns" => Self::ClientNs,
            "queue_ns" => Self::QueueNs,
            "lookup_ns" => Self::LookupNs,
            "prefill_ns" => Self::PrefillNs,
            "first_decode_ns" => Self::FirstDecodeNs,
            "first_token_ns" => Self::FirstTokenNs,
            "finish_ns" => Self::FinishNs,
            "input_tokens" => Self::InputTokens,
            "output_tokens" => Self::OutputTokens,
            "cached_prefix_length_used" | "cached_gpu_tokens" => Self::CachedTokens,
            "num_tokens_actually_prefilled" => Self::LeftTokens,
            "recomputed_tokens" => Self::RecomputedTokens,
            "preemptions" => Self::Preemptions,
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
    /// No rows; `columns` names those of the request's table in their order.
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            columns: columns.into_iter().map(Column::from_name).collect(),
            requests: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Adds the row of a finished request.
    pub(super) fn finish(&mut self, request: &Request, machine: i64, finish_ns: u64) {
        let arrival = &request.arrival;
        let value = |column: &Column| match column {
            Column::Request => i64::from(arrival.request),
            Column::Machine => machine,
            Column::DecodeMachine => -1,
            Column::Session => arrival.session,
            Column::Turn => arrival.turn,
            Column::Conversational => i64::from(arrival.is_conversational_turn),
            Column::Outcome => i64::from(request.outcome),
            Column::ArrivalNs => request.arrival_ns as i64,
            Column::ClientNs => request.client_ns as i64,
            Column::QueueNs => request.queue_ns as i64,
            Column::LookupNs => request.lookup_ns as i64,
            Column::PrefillNs => request.prefill_ns as i64,
            Column::FirstDecodeNs => request.first_decode_ns as i64,
            Column::FirstTokenNs => request.first_token_ns.map_or(-1, |ns| ns as i64),
            Column::FinishNs => finish_ns as i64,
            Column::InputTokens => arrival.prompt_tokens as i64,
            Column::OutputTokens => arrival.output_tokens as i64,
            Column::CachedTokens => request.cached_tokens as i64,
            Column::LeftTokens => request.left_tokens as i64,
            Column::RecomputedTokens => request.recomputed_tokens,
            Column::Preemptions => i64::from(request.preemptions),
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
