//! The receiving side: a decode machine reserves room, first come, first served, and takes into its batch (the rules
//! of `spec/handover.py`).

use std::collections::VecDeque;

use crate::batch::Sequence;
use crate::digest::Record;
use crate::machine::messages::{Computing, Incoming, IncomingId, Letter, Task};
use crate::machine::{Now, Place, Replica, Request};
use crate::places::Places;
use crate::store::{Answer, MoveId, Times, GPU};
use crate::transfers::plugins::Sending;
use crate::transfers::{FarTransfer, Feed, Hop, Transfer, TransferId, Transmission};

/// Handed-over requests on their decode machine: queued for room, on their way, arrived.
#[derive(Debug, Default)]
pub struct Reception {
    incoming: Places<Option<Incoming>>,
    pub(in crate::machine) asking: VecDeque<IncomingId>,
    pub(in crate::machine) arriving: usize,
    /// Who has arrived, and how many blocks it holds.
    pub(in crate::machine) arrived: VecDeque<(Place, u64)>,
}

impl Reception {
    /// Notes that the client of a request on its way here gives it up; whether there is such a one.
    pub(in crate::machine) fn client_leaves(&mut self, request: u32) -> bool {
        let mut incoming = self.incoming.iter_mut().flatten();
        let leaves = incoming.find(|incoming| incoming.arrival.request == request);
        leaves.is_some_and(|leaves| {
            leaves.given_up = true;
            true
        })
    }

    pub(in crate::machine) fn of(&self, id: IncomingId) -> &Incoming {
        let incoming = self.incoming[id].as_ref();
        incoming.expect("a hand-over is kept until it is complete")
    }

    pub(in crate::machine) fn of_mut(&mut self, id: IncomingId) -> &mut Incoming {
        let incoming = self.incoming[id].as_mut();
        incoming.expect("a hand-over is kept until it is complete")
    }
}

impl Replica {
    /// Queues a request for room.
    pub(in crate::machine) fn ask_for_room(
        &mut self,
        now: &mut Now<'_>,
        mut incoming: Incoming,
    ) -> Answer<IncomingId> {
        self.prefill_load
            .add(incoming.arrival.prompt_tokens, incoming.expected_tokens);
        incoming.asked_ns = now.ns;
        let reception = &mut self.handover.reception;
        let id = reception.incoming.keep(Some(incoming));
        reception.asking.push_back(id);
        if !self.arrivals.refused {
            self.wake(now, now.ns + 1)?;
        }
        Ok(id)
    }

    /// Whether a handed-over request, known to the scheduler, goes before the head of the queue.
    pub(in crate::machine) fn asks_first(&self, head: Option<Place>) -> bool {
        let Some(&first) = self.handover.reception.asking.front() else {
            return false;
        };
        let preempted = head.is_some_and(|head| self.requests[head].preemptions > 0);
        !preempted
            && self
                .arrivals
                .queue
                .knows_since(self.handover.reception.of(first).asked_ns + 1)
    }

    /// Reserves room for the first of those who ask and lets its KV come; false when that is refused.
    pub(in crate::machine) fn take(&mut self, now: &mut Now<'_>) -> Answer<bool> {
        let Some(&id) = self.handover.reception.asking.front() else {
            return Ok(false);
        };
        let block = self.config.block_size_tokens;
        let arrival = self.handover.reception.of(id).arrival;
        let (total, full) = (
            arrival.prompt_tokens.div_ceil(block),
            arrival.prompt_tokens / block,
        );
        let here = if self.config.cache_enabled {
            now.store.peek(arrival.request, full as u32)?.1
        } else {
            0
        };
        let lacking = total - u64::from(here);
        let Some((lease, room)) = now.take_room((arrival.request, here), lacking)? else {
            return Ok(false);
        };
        self.handover.reception.asking.pop_front();
        self.handover.reception.arriving += 1;
        self.issue(now, None)?;
        let incoming = self.handover.reception.of_mut(id);
        incoming.lease = Some(lease);
        incoming.reserved_ns = now.ns;
        (incoming.total_blocks, incoming.sent_blocks) = (total, lacking);
        if lacking > 0 {
            self.depart(now, id, &room)?;
        } else if self.handover.reception.of(id).request.is_some() {
            let (machine, place) = self.handover.reception.of(id).source;
            let release = Task::Release(place, true);
            self.handover.letters.push(Letter::Tell(machine, release));
            self.kv_received(now, id)?;
            self.join_arrived(now)?;
        }
        Ok(true)
    }

    /// Sends what is lacking here as soon as the moves `room` have freed its place.
    fn depart(&mut self, now: &mut Now<'_>, id: IncomingId, room: &[MoveId]) -> Answer<()> {
        let Some(how) = self.config.role.receives() else {
            return Ok(());
        };
        let incoming = self.handover.reception.of(id);
        if let Some((down, up)) = &incoming.way.memory {
            let blocks = incoming.sent_blocks;
            let sending = Sending {
                blocks,
                size_bytes: self.mover.job(blocks).size_bytes,
                now_ns: now.ns,
            };
            let down = down.chosen(&sending)?.clone();
            let memory = (down, up.chosen(&sending)?.clone());
            self.depart_over_memory(id, memory, room);
            return Ok(());
        }
        let step = incoming.computed.filter(|step| now.ns < step.completion_ns);
        let hop = Hop {
            feed: Feed::of_step(step, now.ns),
            is_first: true,
            is_last: true,
            ..Hop::over((id, incoming.way.wire.clone()), how.layer_by_layer)
        };
        let (source, _) = incoming.source;
        let way = ((how.remote, GPU), incoming.sent_blocks);
        let wire = self.mover.send_hop(now, hop, way, room)?;
        if let Some(step) = step {
            self.await_step(source, wire, (step, None));
        }
        self.log_transfers();
        Ok(())
    }

    /// Lets a hop of this machine hear of what a step of a machine computes; the number that the step has among what is
    /// sent there, where that is taken already.
    pub(in crate::machine) fn await_step(
        &mut self,
        machine: u32,
        hop: TransferId,
        (step, number): (Transmission, Option<u64>),
    ) {
        self.handover.letters.push(Letter::Awaits {
            machine,
            hop: FarTransfer {
                machine: self.machine(),
                id: hop,
            },
            computing: Computing {
                step,
                number,
                layers: self.mover.told_layers(hop),
            },
        });
    }

    /// The room of a hand-over is free.
    pub(in crate::machine) fn room_came(&mut self, id: IncomingId, now_ns: u64) {
        self.handover.reception.of_mut(id).reserved_ns = now_ns;
    }

    /// The prompt of a hand-over is computed; returns whether nothing of it is to be sent.
    pub(in crate::machine) fn prompt_came(
        &mut self,
        id: IncomingId,
        request: Box<Request>,
    ) -> bool {
        let incoming = self.handover.reception.of_mut(id);
        let announced = incoming.computed.is_some();
        incoming.request = Some(request);
        announced && incoming.lease.is_some() && incoming.sent_blocks == 0
    }

    /// A request's KV is here: it is shared as if computed here.
    pub(in crate::machine) fn kv_received(
        &mut self,
        now: &mut Now<'_>,
        id: IncomingId,
    ) -> Answer<()> {
        let Some(how) = self.config.role.receives() else {
            return Ok(());
        };
        let incoming = self.handover.reception.incoming.remove(id);
        let incoming = incoming.expect("a hand-over is complete once");
        let (request, lease) = (incoming.request, incoming.lease);
        let mut s = *request.expect("its prompt is computed before its KV is here");
        let lease = lease.expect("room was reserved for it");
        s.lease = lease;
        s.sent_on = false;
        s.given_up |= incoming.given_up;
        s.handover_blocks = incoming.sent_blocks;
        s.handover_room_ns = incoming.reserved_ns.saturating_sub(s.since_ns);
        let (prompt_tokens, since_ns) = (s.arrival.prompt_tokens, s.since_ns);
        let place = self.requests.keep(s);
        if self.config.cache_enabled {
            let blocks = (prompt_tokens / self.config.block_size_tokens) as u32;
            self.share(now, place, blocks)?;
        }
        self.prefill_load.take_out(0, incoming.expected_tokens);
        let s = &mut self.requests[place];
        let (request, sent) = (u64::from(s.arrival.request), incoming.sent_blocks);
        let waited = now.ns - since_ns;
        let records = now.store.records_mut();
        records.note(Record::Handover as u8, now.ns, request, sent);
        if how.first_token_at_prefill {
            s.handover_gap_ns = waited;
        } else {
            s.handover_ns = waited;
            self.show_first_token(now, place);
        }
        self.handover.reception.arriving -= 1;
        let held = (place, incoming.total_blocks);
        self.handover.reception.arrived.push_back(held);
        Ok(())
    }

    /// Shares the first blocks of a request that were received from elsewhere, as if computed here.
    fn share(&mut self, now: &mut Now<'_>, place: Place, blocks: u32) -> Answer<()> {
        let lease = self.requests[place].lease;
        let start = now.store.depth(lease)?;
        if blocks > start {
            now.store.commit(lease, blocks, Times::at(now.ns))?;
            if self.writes_at_commit() {
                self.write_committed(now, place, (start, blocks))?;
                self.issue(now, None)?;
            }
        }
        Ok(())
    }

    /// Lets what has arrived into the step while it has tokens for it.
    pub(in crate::machine) fn join_arrived(&mut self, now: &mut Now<'_>) -> Answer<()> {
        while self.batch.budget_left() > 0 {
            let Some((place, blocks)) = self.handover.reception.arrived.pop_front() else {
                break;
            };
            let s = &self.requests[place];
            let prompt_tokens = s.arrival.prompt_tokens;
            let sequence = Sequence {
                computed: prompt_tokens,
                prefill_target: prompt_tokens,
                blocks,
                last_token_ns: s.first_token_ns,
                ..Sequence::default()
            };
            self.add_to_batch(now, place, sequence)?;
        }
        Ok(())
    }

    /// A request is here of which nothing had to be sent.
    pub(in crate::machine) fn nothing_to_send(
        &mut self,
        now: &mut Now<'_>,
        id: IncomingId,
    ) -> Answer<()> {
        self.catch_up(now, now.ns + 1)?;
        self.kv_received(now, id)?;
        self.go_on(now, now.ns + 1)
    }

    /// The machine and the place there of a request whose KV has been read with what arrives next.
    pub fn source_read_next(&self) -> Option<(u32, Place)> {
        let (transfer, complete) = self.mover.peek_arrival()?;
        self.source_read(transfer).filter(|_| complete)
    }

    /// The same with so many layers of a transfer.
    pub fn source_read_with(&self, (id, layers): (TransferId, u64)) -> Option<(u32, Place)> {
        let source = self.source_read(self.mover.transfer(id));
        source.filter(|_| layers == self.mover.config().layers)
    }

    fn source_read(&self, transfer: &Transfer) -> Option<(u32, Place)> {
        let id = transfer.reads_source_of()?;
        Some(self.handover.reception.of(id).source)
    }
}
