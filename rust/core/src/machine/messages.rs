//! Tasks of a machine, their results, and the messages between machines: plain data.

use super::remote_run::RemoteRun;
use super::{Arrival, Request, Slot};
use crate::ids::BlockRange;
use crate::step_time::RankStep;
use crate::store::{LeaseId, MoveId, Part};
use crate::transfers::{Computed, FarTransfer, Lane, SharedChannel, TransferId, Transmission};

/// Order of an event among all events; the first field counts most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKey {
    /// Time of the event.
    pub time_ns: u64,
    /// Priority at one instant, the smallest first.
    pub priority: u8,
    /// Machine of the event.
    pub machine: u32,
    /// Number on that machine.
    pub number: u64,
}

/// A request on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotOn {
    /// The machine.
    pub machine: u32,
    /// The request's slot there.
    pub slot: Slot,
}

/// A request on a machine, by its number in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOn {
    /// The machine.
    pub machine: u32,
    /// The request.
    pub request: u32,
}

/// A request and its lease.
#[derive(Clone, Copy, Debug)]
pub struct RequestLease {
    /// The request.
    pub request: u32,
    /// Its lease.
    pub lease: LeaseId,
}

/// A part of a request's blocks on another machine.
#[derive(Clone, Copy, Debug)]
pub struct PartOn {
    /// The machine.
    pub owner: u32,
    /// The part, by its tier there.
    pub part: Part,
}

/// A request to choose the machine that decodes a request.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The machine that computes its prompt, and its slot there.
    pub source: SlotOn,
    /// The request as it arrived.
    pub arrival: Arrival,
    /// Its arrival at the cluster.
    pub arrival_ns: u64,
    /// Times at which its layers are computed, if layers leave one by one.
    pub computed: Option<Transmission>,
}

/// Messages of a replica to other machines.
#[derive(Debug)]
pub enum Message {
    /// The prompt of a request that is decoded on another machine is computed, or will be by the step that starts
    /// now.
    Announced(Question),
    /// The prompt of an announced request is computed.
    Prefilled {
        /// Its slot here.
        slot: Slot,
        /// Its current state.
        request: Box<Request>,
    },
    /// A hop waits for layers that a step computes.
    Awaits {
        /// The step's machine.
        machine: u32,
        /// The hop.
        hop: FarTransfer,
        /// The step.
        computing: Computing,
    },
    /// A task for a machine, delivered after all boundaries of this instant.
    Send(u32, Task),
    /// A task for a machine, delivered at once.
    SendNow(u32, Task),
}

/// Tasks of a replica.
#[derive(Debug)]
pub enum Task {
    /// Run the next event here.
    Next,
    /// Run the next event here, and then all events before a time.
    RunUntil(u64),
    /// Release the blocks of a request that was sent to another machine; the flag: all boundaries of this instant are
    /// over.
    Release(Slot, bool),
    /// Reserve blocks for a hand-over.
    RequestCapacity(Box<Incoming>),
    /// Continue with a hand-over whose prompt is computed; the answer is true if nothing must be sent.
    PromptCame(IncomingId, Box<Request>),
    /// Continue with a hand-over that needed no transfer.
    NothingToSend(IncomingId),
    /// Continue with a hop after a step has computed some of its layers; the answer is true if it waits for more.
    Computed(TransferId, Transmission, Computed),
    /// Send a prompt down.
    Depart(Box<SourceSide>),
    /// Continue after a step has computed layers that a hop to another machine waited for.
    Resume,
    /// Record a completed turn of a session: the session's number, and the tokens of the turn.
    TurnCompleted(i64, u64),
    /// Run a manual cache operation.
    Operate(Box<Operation>),
    /// End the running step, if there is one, as a rank of an engine.
    EndStep,
    /// Compose a rank's next step; the result has its own part.
    Compose,
    /// Start a rank's composed step with this duration.
    StartStep(u64),
    /// Handle the arrival of this many layers of a transfer.
    LayerCame(TransferId, u64),
    /// Queue a request that has arrived.
    Enqueue(Slot),
    /// Prefetch what a request's prompt of this many tokens would read from further down, before a session's next
    /// turn.
    Prefetch(u32, u64),
    /// Abort a request that was sent here; the answer is true if the request was here.
    Abort(u32),
    /// Abort a request whose prompt another machine computed; the answer is true if the request was here.
    AbortHandedOver(u32),
}

/// Results of a task.
#[derive(Debug, Default)]
pub struct Done {
    /// Messages to other machines.
    pub messages: Vec<Message>,
    /// Requests that have finished here.
    pub closed: Vec<u32>,
    /// The next event of the machine itself.
    pub next: Option<EventKey>,
    /// The answer of a task that has one.
    pub answer: bool,
    /// Identifier of a new hand-over.
    pub incoming: IncomingId,
    /// A composed step of a rank, if anything runs.
    pub step: Option<RankStep>,
    /// Result of a manual operation.
    pub operated: Operated,
}

/// A manual cache operation.
#[derive(Clone, Debug)]
pub enum Operation {
    /// Load or join one part of this machine's blocks for a request's lease, after the moves that free its blocks.
    Load(RequestLease, Part, Vec<MoveId>),
    /// Find the longest run of these blocks of a request that one other machine has below its GPU.
    Longest(u32, BlockRange),
    /// Read one part of a request's blocks on another machine, by its tier there.
    Fetch(u32, PartOn),
    /// Set the arrival of a move: (tier it reads, tier it writes), blocks, and the times of a transmission that was
    /// queued before.
    Arrive(MoveId, (usize, usize), u64, Transmission),
}

/// Result of a manual cache operation.
#[derive(Clone, Debug, Default)]
pub enum Operated {
    /// Nothing to report.
    #[default]
    Nothing,
    /// The move of the blocks; `None` if there are no free blocks.
    Moved(Option<MoveId>),
    /// A run on another machine.
    Found(Option<RemoteRun>),
}

/// A step that computes the layers that a hop sends.
#[derive(Clone, Copy, Debug)]
pub struct Computing {
    /// Times at which it computes its layers.
    pub step: Transmission,
    /// Its number among the transfers of its machine, if already taken.
    pub number: Option<u64>,
    /// Number of layers of which the hop is notified one by one.
    pub layers: u64,
}

/// The channels of a hand-over.
#[derive(Clone, Debug)]
pub struct Route {
    /// Channel between the machines.
    pub wire: SharedChannel,
    /// Lanes from the GPU of the source down, and up to the GPU of the target, if the path crosses their memory.
    pub memory: Option<(Lane, Lane)>,
}

/// A hand-over that leaves the GPU on which it was computed.
#[derive(Clone, Debug)]
pub struct SourceSide {
    /// Its target: the hand-over there, and the hop that forwards what was sent down.
    pub(super) target: (IncomingId, FarTransfer),
    /// The request's slot where it was computed.
    pub(super) slot: Slot,
    /// Moves at the target that free its blocks.
    pub(super) freeing_moves: Vec<MoveId>,
    pub(super) blocks: u64,
    pub(super) channel: SharedChannel,
    pub(super) computed: Option<Transmission>,
}

/// Identifier of a hand-over on its target machine.
pub type IncomingId = u32;

/// A request whose prompt another machine computes, from its request for blocks until its KV is here.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The machine that computes its prompt, and its slot there.
    pub source: SlotOn,
    /// The request as it arrived at the cluster.
    pub arrival: Arrival,
    /// The request's state when its prompt was computed, once it is.
    pub request: Option<Box<Request>>,
    /// Times at which the step with the prompt's last chunk computes its layers, if layers leave one by one.
    pub computed: Option<Transmission>,
    /// Expected number of tokens to transfer.
    pub expected_tokens: u64,
    /// Its channels.
    pub route: Route,
    pub(super) requested_ns: u64,
    pub(super) reserved_ns: u64,
    pub(super) lease: Option<LeaseId>,
    pub(super) total_blocks: u64,
    pub(super) sent_blocks: u64,
    /// True if its client has aborted it in between.
    pub(super) pending_aborts: bool,
}

/// A hand-over of which a step begins the read.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// Its number on this machine.
    pub incoming: IncomingId,
    /// Blocks to read; 0: its request is aborted, and the other machine is notified.
    pub blocks: u64,
}

impl Incoming {
    /// A hand-over that has not requested blocks yet.
    pub fn new(
        source: SlotOn,
        arrival: Arrival,
        computed: Option<Transmission>,
        route: Route,
        expected_tokens: u64,
    ) -> Self {
        Self {
            source,
            arrival,
            request: None,
            computed,
            expected_tokens,
            route,
            requested_ns: 0,
            reserved_ns: 0,
            lease: None,
            total_blocks: 0,
            sent_blocks: 0,
            pending_aborts: false,
        }
    }
}
