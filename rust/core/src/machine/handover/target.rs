//! The receiving side: a decode machine reserves blocks, first come, first served, and adds requests to its batch
//! (the rules of `spec/handover.py`).

use std::collections::VecDeque;

use crate::batch::Sequence;
use crate::convert::fit;
use crate::digest::Record;
use crate::ids::BlockRange;
use crate::machine::messages::{Computing, Incoming, IncomingId, Message, SlotOn, Task};
use crate::machine::{Now, Replica, Request, Slot};
use crate::slab::Slab;
use crate::store::{Answer, MoveId, Times, GPU};
use crate::tiers::Route;
use crate::transfers::plugins::Sending;
use crate::transfers::{FarTransfer, Feed, Hop, Transfer, TransferId, Transmission};

/// Handed-over requests on their decode machine: waiting for blocks, in transit, arrived.
#[derive(Debug, Default)]
pub struct HandOverTarget {
    incoming: Slab<Option<Incoming>>,
    pub(in crate::machine) asking: VecDeque<IncomingId>,
    pub(in crate::machine) arriving: usize,
    /// Arrived requests, with the number of their blocks.
    pub(in crate::machine) arrived: VecDeque<(Slot, u64)>,
}

impl HandOverTarget {
    /// Records that the client of a request in transit to this machine has aborted it; returns true if there is such
    /// a request.
    pub(in crate::machine) fn client_leaves(&mut self, request: u32) -> bool {
        let mut incoming = self.incoming.iter_mut().flatten();
        let leaves = incoming.find(|incoming| incoming.arrival.request == request);
        leaves.is_some_and(|leaves| {
            leaves.pending_aborts = true;
            true
        })
    }

    pub(in crate::machine) fn keep(&mut self, incoming: Incoming) -> IncomingId {
        self.incoming.keep(Some(incoming))
    }

    pub(in crate::machine) fn take(&mut self, id: IncomingId) -> Incoming {
        let incoming = self.incoming.remove(id);
        incoming.expect("a hand-over is complete once")
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
    /// Queues a request for blocks.
    pub(in crate::machine) fn request_capacity(
        &mut self,
        now: &mut Now<'_>,
        mut incoming: Incoming,
    ) -> Answer<IncomingId> {
        self.prefill_load
            .add(incoming.arrival.prompt_tokens, incoming.expected_tokens);
        incoming.requested_ns = now.ns;
        let target = &mut self.handover.target;
        let id = target.incoming.keep(Some(incoming));
        target.asking.push_back(id);
        if !self.arrivals.refused {
            self.wake(now, now.ns + 1)?;
        }
        Ok(id)
    }

    /// True if a handed-over request that the scheduler can see comes before the head of the queue.
    pub(in crate::machine) fn asks_first(&self, head: Option<Slot>) -> bool {
        let Some(&first) = self.handover.target.asking.front() else {
            return false;
        };
        let preempted = head.is_some_and(|head| self.requests[head].scheduling.preemptions > 0);
        !preempted
            && self
                .arrivals
                .queue
                .can_see_since(self.handover.target.of(first).requested_ns + 1)
    }

    /// Reserves blocks for the first waiting hand-over and starts its transfer; false if the blocks are refused.
    pub(in crate::machine) fn take(&mut self, now: &mut Now<'_>) -> Answer<bool> {
        let Some(&id) = self.handover.target.asking.front() else {
            return Ok(false);
        };
        let block = self.config.block_size_tokens;
        let arrival = self.handover.target.of(id).arrival;
        let (total, full) = (
            arrival.prompt_tokens.div_ceil(block),
            arrival.prompt_tokens / block,
        );
        let here = if self.config.reuse.cache_enabled {
            now.store.peek(arrival.request, fit::<u32>(full))?.1
        } else {
            0
        };
        let lacking = total - u64::from(here);
        let Some((lease, freeing_moves)) = now.reserve_lease(arrival.request, here, lacking)?
        else {
            return Ok(false);
        };
        self.handover.target.asking.pop_front();
        self.handover.target.arriving += 1;
        self.issue(now, None)?;
        let incoming = self.handover.target.of_mut(id);
        incoming.lease = Some(lease);
        incoming.reserved_ns = now.ns;
        (incoming.total_blocks, incoming.sent_blocks) = (total, lacking);
        if lacking > 0 {
            self.depart(now, id, &freeing_moves)?;
        } else if self.handover.target.of(id).request.is_some() {
            let SlotOn { machine, slot } = self.handover.target.of(id).source;
            let release = Task::Release(slot, true);
            self.handover.messages.push(Message::Send(machine, release));
            self.kv_received(now, id)?;
            self.join_arrived(now)?;
        }
        Ok(true)
    }

    /// Sends the blocks missing here as soon as the moves `freeing_moves` have freed blocks for them.
    fn depart(
        &mut self,
        now: &mut Now<'_>,
        id: IncomingId,
        freeing_moves: &[MoveId],
    ) -> Answer<()> {
        let Some(how) = self.config.role.receives() else {
            return Ok(());
        };
        let incoming = self.handover.target.of(id);
        if let Some((down, up)) = &incoming.route.memory {
            let blocks = incoming.sent_blocks;
            let sending = Sending {
                blocks,
                size_bytes: self.mover.job(blocks).size_bytes,
                now_ns: now.ns,
            };
            let down = down.chosen(&sending)?.clone();
            let up = up.chosen(&sending)?.clone();
            self.depart_over_memory(id, down, up, freeing_moves);
            return Ok(());
        }
        let step = incoming.computed.filter(|step| now.ns < step.completion_ns);
        let hop = Hop {
            feed: Feed::of_step(step, now.ns),
            is_first: true,
            is_last: true,
            ..Hop::over(id, incoming.route.wire.clone(), how.layer_by_layer)
        };
        let source = incoming.source.machine;
        let route = Route::new(how.remote, GPU);
        let blocks = incoming.sent_blocks;
        let wire = self
            .mover
            .send_hop(now, hop, route, blocks, freeing_moves)?;
        if let Some(step) = step {
            self.await_step(source, wire, step, None);
        }
        self.log_transfers();
        Ok(())
    }

    /// Subscribes a hop of this machine to the layers that a step of a machine computes. `number`: the step's number
    /// among the transfers of that machine, if already taken.
    pub(in crate::machine) fn await_step(
        &mut self,
        machine: u32,
        hop: TransferId,
        step: Transmission,
        number: Option<u64>,
    ) {
        self.handover.messages.push(Message::Awaits {
            machine,
            hop: FarTransfer {
                machine: self.machine(),
                id: hop,
            },
            computing: Computing {
                step,
                number,
                layers: self.mover.reported_layers(hop),
            },
        });
    }

    /// Records that the blocks of a hand-over are free.
    pub(in crate::machine) fn on_freed(&mut self, id: IncomingId, now_ns: u64) {
        self.handover.target.of_mut(id).reserved_ns = now_ns;
    }

    /// Records that the prompt of a hand-over is computed; returns true if nothing must be sent.
    pub(in crate::machine) fn prompt_came(
        &mut self,
        id: IncomingId,
        request: Box<Request>,
    ) -> bool {
        let incoming = self.handover.target.of_mut(id);
        let announced = incoming.computed.is_some();
        incoming.request = Some(request);
        announced && incoming.lease.is_some() && incoming.sent_blocks == 0
    }

    /// Shares the received KV of a request as if it had been computed here.
    pub(in crate::machine) fn kv_received(
        &mut self,
        now: &mut Now<'_>,
        id: IncomingId,
    ) -> Answer<()> {
        let Some(how) = self.config.role.receives() else {
            return Ok(());
        };
        let incoming = self.handover.target.take(id);
        let (request, lease) = (incoming.request, incoming.lease);
        let mut s = *request.expect("its prompt is computed before its KV is here");
        let lease = lease.expect("blocks were reserved for it");
        s.lease = lease;
        s.handover.sent_on = false;
        s.pending_aborts |= incoming.pending_aborts;
        s.handover.blocks = incoming.sent_blocks;
        s.handover.capacity_wait_ns = incoming.reserved_ns.saturating_sub(s.since_ns);
        let (prompt_tokens, since_ns) = (s.arrival.prompt_tokens, s.since_ns);
        let slot = self.requests.keep(s);
        if self.config.reuse.cache_enabled {
            let blocks = fit::<u32>(prompt_tokens / self.config.block_size_tokens);
            self.share(now, slot, blocks)?;
        }
        self.prefill_load.take_out(0, incoming.expected_tokens);
        let s = &mut self.requests[slot];
        let (request, sent) = (u64::from(s.arrival.request), incoming.sent_blocks);
        let waited = now.ns - since_ns;
        let records = now.store.records_mut();
        records.note(Record::Handover as u8, now.ns, request, sent);
        if how.first_token_at_prefill {
            s.handover.gap_ns = waited;
        } else {
            s.ttft.handover_ns = waited;
            self.show_first_token(now, slot);
        }
        self.handover.target.arriving -= 1;
        let held = (slot, incoming.total_blocks);
        self.handover.target.arrived.push_back(held);
        Ok(())
    }

    /// Shares the first blocks of a request that were received from another machine, as if computed here.
    fn share(&mut self, now: &mut Now<'_>, slot: Slot, blocks: u32) -> Answer<()> {
        let lease = self.requests[slot].lease;
        let start = now.store.depth(lease)?;
        if blocks > start {
            now.store.commit(lease, blocks, Times::at(now.ns))?;
            if self.writes_at_commit() {
                let shared = BlockRange::new(start, blocks);
                self.write_committed(now, slot, shared)?;
                self.issue(now, None)?;
            }
        }
        Ok(())
    }

    /// Adds arrived requests to the step while it has tokens for them.
    pub(in crate::machine) fn join_arrived(&mut self, now: &mut Now<'_>) -> Answer<()> {
        while self.batch.budget_left() > 0 {
            let Some((slot, blocks)) = self.handover.target.arrived.pop_front() else {
                break;
            };
            let s = &self.requests[slot];
            let prompt_tokens = s.arrival.prompt_tokens;
            let sequence = Sequence {
                computed: prompt_tokens,
                prefill_target: prompt_tokens,
                blocks,
                last_token_ns: s.generated.first_token_ns,
                ..Sequence::default()
            };
            self.add_to_batch(now, slot, sequence)?;
        }
        Ok(())
    }

    /// Completes a hand-over that needed no transfer.
    pub(in crate::machine) fn nothing_to_send(
        &mut self,
        now: &mut Now<'_>,
        id: IncomingId,
    ) -> Answer<()> {
        self.catch_up(now, now.ns + 1)?;
        self.kv_received(now, id)?;
        self.resume(now, now.ns + 1)
    }

    /// The machine and the slot there of a request whose KV has been read with the next arrival.
    pub fn source_read_next(&self) -> Option<SlotOn> {
        let (transfer, complete) = self.mover.next_arrival()?;
        self.source_read(transfer).filter(|_| complete)
    }

    /// The machine and the slot there of a request whose KV has been read with these layers of a transfer.
    pub fn source_read_with(&self, id: TransferId, layers: u64) -> Option<SlotOn> {
        let source = self.source_read(self.mover.transfer(id));
        source.filter(|_| layers == self.mover.config().layers)
    }

    fn source_read(&self, transfer: &Transfer) -> Option<SlotOn> {
        let id = transfer.reads_source_of()?;
        Some(self.handover.target.of(id).source)
    }
}
