//! A replica: arrivals, and what happens at a step boundary.

use super::queue::Queue;
use super::rows::Rows;
use super::sessions::Sessions;
use super::{Arrival, Place, ReplicaConfig, Request, ServingStore};
use crate::batch::Batch;
use crate::store::Answer;

/// One engine instance: serves requests from the GPU of one machine.
///
/// Whoever drives it keeps the clock: after each call it asks [`Replica::boundary_ns`] when to call
/// [`Replica::at_boundary`].
#[derive(Debug)]
pub struct Replica {
    pub(super) config: ReplicaConfig,
    /// The running batch.
    pub batch: Batch,
    pub(super) queue: Queue,
    pub(super) requests: Vec<Request>,
    /// Places of `requests` that nobody has.
    pub(super) free: Vec<Place>,
    /// Requests in the batch, in the order in which they joined.
    pub(super) running: Vec<Place>,
    /// Requests that have ended and still hold their places and blocks (asynchronous scheduling).
    pub(super) leaving: Vec<Place>,
    pub(super) joined: u64,
    /// The queue's head was refused; tried again when something has been given back.
    pub(super) refused: bool,
    stepping: bool,
    boundary_ns: Option<u64>,
    pub(super) sessions: Sessions,
    /// Rows that have not been handed over yet.
    pub rows: Rows,
    /// Requests routed here that are not finished.
    pub open_requests: u64,
    /// Prompt tokens routed here that are not computed yet.
    pub queued_tokens: u64,
    /// Of these, those that the router expected to be computed.
    pub expected_prefill_tokens: u64,
    pub(super) closed: Vec<u32>,
    pub(super) prefilled: Option<Vec<(u32, u64)>>,
}

impl Replica {
    /// A replica with nothing to do.
    pub fn new(config: ReplicaConfig, batch: Batch, rows: Rows) -> Self {
        let sessions = Sessions::new(config.max_sessions, config.session_ttl_ns);
        Self {
            queue: Queue::new(config.queue_order),
            config,
            batch,
            requests: Vec::new(),
            free: Vec::new(),
            running: Vec::new(),
            leaving: Vec::new(),
            joined: 0,
            refused: false,
            stepping: false,
            boundary_ns: None,
            sessions,
            rows,
            open_requests: 0,
            queued_tokens: 0,
            expected_prefill_tokens: 0,
            closed: Vec::new(),
            prefilled: None,
        }
    }

    /// Takes a request over; it is not in the queue yet.
    pub fn arrive(&mut self, arrival: Arrival, now_ns: u64) -> Place {
        self.arrived(Request::new(arrival, now_ns))
    }

    /// Ends a request's way from the client to the scheduler.
    pub fn received(&mut self, place: Place, now_ns: u64) {
        let s = &mut self.requests[place as usize];
        s.client_ns += now_ns - s.since_ns;
        s.since_ns = now_ns;
    }

    /// Queues a request that has been looked up.
    pub fn enqueue<S: ServingStore>(
        &mut self,
        store: &mut S,
        place: Place,
        now_ns: u64,
    ) -> Answer<()> {
        let s = &mut self.requests[place as usize];
        s.lookup_ns += now_ns - s.since_ns;
        s.since_ns = now_ns;
        self.queue.push_back(place);
        if self.config.look_ahead > 0 {
            self.catch_up(store, now_ns)?;
            self.protect_waiting(store, None)?;
        }
        if !self.refused {
            self.wake(store, now_ns)?;
        }
        Ok(())
    }

    /// When the next boundary is due; `None` while there is nothing to do.
    pub fn boundary_ns(&self) -> Option<u64> {
        self.boundary_ns
    }

    /// Runs the iterations that began before a time, so that the store is as it is then.
    pub fn catch_up<S: ServingStore>(&mut self, store: &mut S, now_ns: u64) -> Answer<()> {
        if self.stepping {
            self.batch.advance(store, now_ns)?;
        }
        Ok(())
    }

    /// Makes sure that a boundary comes as soon as the scheduler could do something new.
    fn wake<S: ServingStore>(&mut self, store: &mut S, now_ns: u64) -> Answer<()> {
        if !self.stepping {
            self.boundary_ns.get_or_insert(now_ns);
        } else if self.could_admit() {
            self.boundary_ns = Some(self.batch.interrupt(store, now_ns)?);
        }
        Ok(())
    }

    /// Ends the step, composes the next one and starts it.
    pub fn at_boundary<S: ServingStore>(&mut self, store: &mut S, now_ns: u64) -> Answer<()> {
        self.boundary_ns = None;
        if std::mem::take(&mut self.stepping) {
            let ended = self.batch.end(store)?;
            for place in ended.first_token {
                self.first_token(store, place, now_ns);
            }
            self.step_ended(store, &ended.finished, now_ns)?;
        }
        self.compose(store, now_ns)?;
        if !self.batch.is_empty() {
            let mut end_ns = self.batch.start(store, now_ns, 0);
            self.stepping = true;
            if self.wants_boundary() {
                end_ns = self.batch.interrupt(store, now_ns)?;
            }
            self.boundary_ns = Some(end_ns);
        }
        Ok(())
    }

    /// Starts keeping whose prompt has been computed, for [`Replica::take_prefilled`].
    pub fn tell_prefilled(&mut self) {
        self.prefilled.get_or_insert_with(Vec::new);
    }

    /// Requests whose prompt has been computed since the last call, and its tokens, where that is kept.
    pub fn take_prefilled(&mut self) -> Vec<(u32, u64)> {
        self.prefilled
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Requests that have finished since the last call.
    pub fn take_closed(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.closed)
    }

    /// Requests that wait for room.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Requests in the batch.
    pub fn running(&self) -> usize {
        self.running.len()
    }
}
