//! What a machine is asked to do, what came of it, and what it sends to others: plain data.

use super::{Arrival, Request, Slot};
use crate::store::{LeaseId, MoveId, Part};
use crate::transfers::{Computed, FarTransfer, Lane, SharedChannel, TransferId, Transmission};

/// When something happens among all that does: time, priority, machine, number on that machine.
pub type Key = (u64, u8, u32, u64);

/// The question which machine decodes a request.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The machine that computes its prompt, and its place there.
    pub source: (u32, Slot),
    /// As it came.
    pub arrival: Arrival,
    /// Its arrival at the cluster.
    pub arrival_ns: u64,
    /// Times at which its layers are computed, where they leave one by one.
    pub computed: Option<Transmission>,
}

/// What a replica tells others.
#[derive(Debug)]
pub enum Message {
    /// The prompt of a request that goes on elsewhere is computed, or will be with the step that starts now.
    Announced(Question),
    /// The prompt of such a request is computed.
    Prefilled {
        /// Its place here.
        slot: Slot,
        /// As it stands now.
        request: Box<Request>,
    },
    /// A hop waits for what a step computes.
    Awaits {
        /// The step's machine.
        machine: u32,
        /// The hop.
        hop: FarTransfer,
        /// The step.
        computing: Computing,
    },
    /// A machine is asked for something once all boundaries of this instant are over.
    Send(u32, Task),
    /// A machine is asked for something at once.
    SendNow(u32, Task),
}

/// What a replica is asked to do.
#[derive(Debug)]
pub enum Task {
    /// What is next here.
    Next,
    /// What is next here, and then all that comes before a time.
    RunUntil(u64),
    /// Give up what was held for a request that was sent on; the flag: all boundaries of this instant are over.
    Release(Slot, bool),
    /// Reserve room for a hand-over.
    Ask(Box<Incoming>),
    /// The prompt of a hand-over is computed; tells whether nothing of it is to be sent.
    PromptCame(IncomingId, Box<Request>),
    /// Go on with a hand-over of which nothing had to be sent.
    NothingToSend(IncomingId),
    /// Go on with a hop of which a step has computed some; tells whether it waits for more.
    Computed(TransferId, Transmission, Computed),
    /// Send a prompt down.
    Depart(Box<SourceSide>),
    /// A step has computed what was waited for elsewhere.
    Resume,
    /// Enter a session's turn: its number, and its tokens.
    TurnCompleted(i64, u64),
    /// Do a manual cache operation.
    Operate(Box<Operation>),
    /// End the step that runs, if one does, as a rank of an engine.
    EndStep,
    /// Compose a rank's next step; tells what it would take alone.
    Compose,
    /// Start a rank's composed step, which takes so long.
    StartStep(u64),
    /// Hear of so many layers of a transfer that have arrived.
    LayerCame(TransferId, u64),
    /// Queue a request that has come.
    Enqueue(Slot),
    /// Bring up what a request's prompt of so many tokens would read from further down, before a session's next turn.
    Prefetch(u32, u64),
    /// Let a request go that was sent here, if it is; tells whether it was here.
    Abort(u32),
    /// The same of a request whose prompt another machine computed.
    AbortHandedOver(u32),
}

/// What came of a task.
#[derive(Debug, Default)]
pub struct Done {
    /// What it tells others.
    pub messages: Vec<Message>,
    /// Who has finished here.
    pub closed: Vec<u32>,
    /// When something is next here by itself.
    pub next: Option<Key>,
    /// The answer, of tasks that have one.
    pub answer: bool,
    /// Where a new hand-over is kept.
    pub incoming: IncomingId,
    /// What a composed step would take alone, where anything runs.
    pub step_ns: Option<u64>,
    /// What a manual operation brought.
    pub operated: Operated,
}

/// A manual cache operation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Load or join one part of what this machine has for a request's lease, behind the moves that free its room.
    Load((u32, LeaseId), Part, Vec<MoveId>),
    /// Find the longest run of a request's blocks, from one on and before another, that one other machine has below
    /// its GPU.
    Longest(u32, (u32, u32)),
    /// Read one part of a request's blocks on another machine, by its tier there.
    Fetch(u32, (u32, Part)),
    /// Let a move over an edge, from a tier to a tier, bring so many blocks at the times of a transmission that was
    /// queued before.
    Arrive(MoveId, (usize, usize), u64, Transmission),
}

/// What a manual cache operation brought.
#[derive(Clone, Debug, Default)]
pub enum Operated {
    /// Nothing to report.
    #[default]
    Nothing,
    /// The move that brings the blocks; `None` where there is no room.
    Moved(Option<MoveId>),
    /// A machine and what it has, by the tiers there.
    Found(Option<(u32, Vec<Part>)>),
}

/// A step that computes what a hop sends.
#[derive(Clone, Copy, Debug)]
pub struct Computing {
    /// When it computes its layers.
    pub step: Transmission,
    /// Its number among what is sent on its machine, where that is taken already.
    pub number: Option<u64>,
    /// Of how many layers the hop hears one by one.
    pub layers: u64,
}

/// What a hand-over crosses.
#[derive(Clone, Debug)]
pub struct Route {
    /// Between the machines.
    pub wire: SharedChannel,
    /// From the GPU of the one down, and up to that of the other, where it crosses their memory.
    pub memory: Option<(Lane, Lane)>,
}

/// A hand-over that leaves the GPU on which it was computed.
#[derive(Clone, Debug)]
pub struct SourceSide {
    /// Where it goes: the hand-over there, and the hop that sends on what comes down.
    pub(super) target: (IncomingId, FarTransfer),
    /// The request's place where it was computed.
    pub(super) slot: Slot,
    /// Moves at the target that free its room.
    pub(super) freeing_moves: Vec<MoveId>,
    pub(super) blocks: u64,
    pub(super) channel: SharedChannel,
    pub(super) computed: Option<Transmission>,
}

/// Where a hand-over to a machine is kept there.
pub type IncomingId = u32;

/// A request whose prompt another machine computes, from asking for room until its KV is here.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The machine that computes its prompt, and its place there.
    pub source: (u32, Slot),
    /// As it came to the cluster.
    pub arrival: Arrival,
    /// As it stood when its prompt was computed, once it is.
    pub request: Option<Box<Request>>,
    /// When the step with the prompt's last chunk computes its layers, where they leave one by one.
    pub computed: Option<Transmission>,
    /// Tokens that are expected to cross.
    pub expected_tokens: u64,
    /// What it crosses.
    pub route: Route,
    pub(super) asked_ns: u64,
    pub(super) reserved_ns: u64,
    pub(super) lease: Option<LeaseId>,
    pub(super) total_blocks: u64,
    pub(super) sent_blocks: u64,
    /// Whether its client has given it up meanwhile.
    pub(super) pending_aborts: bool,
}

impl Incoming {
    /// A hand-over that has not asked for room yet.
    pub fn new(
        source: (u32, Slot),
        arrival: Arrival,
        computed: Option<Transmission>,
        (route, expected_tokens): (Route, u64),
    ) -> Self {
        Self {
            source,
            arrival,
            request: None,
            computed,
            expected_tokens,
            route,
            asked_ns: 0,
            reserved_ns: 0,
            lease: None,
            total_blocks: 0,
            sent_blocks: 0,
            pending_aborts: false,
        }
    }
}
