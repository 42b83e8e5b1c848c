//! Records and transfers of a hand-over between machines whose steps engines' own schedulers compose.

use crate::digest::Record;
use crate::machine::engine::Desk;
use crate::machine::engine_notes::Cached;
use crate::machine::messages::{Incoming, IncomingId, Message, Reading, SlotOn, Task};
use crate::machine::schedule_log::ScheduleLog;
use crate::machine::{Replica, Slot};
use crate::store::contract::BlockStore;
use crate::store::{Answer, GPU};
use crate::tiers::Route;
use crate::transfers::Hop;

impl<S: BlockStore> Desk<'_, S> {
    /// Hands a computed prompt over: its blocks are here until they have been read.
    pub(in crate::machine) fn handed_over(&mut self, slot: Slot) {
        let (replica, mut now) = self.at_work();
        replica.prompt_computed(&mut now, slot);
    }

    /// Takes in a request whose prompt another machine has computed; returns its slot and its hand-over.
    pub(in crate::machine) fn received(&mut self, mut incoming: Incoming) -> (Slot, IncomingId) {
        let replica = &mut *self.replica;
        let (tokens, expected) = (incoming.arrival.prompt_tokens, incoming.expected_tokens);
        replica.prefill_load.add(tokens, expected);
        replica.prefill_load.take_out(0, expected);
        let request = incoming.request.take();
        let mut s = *request.expect("an engine hands a prompt over once it is computed");
        s.handover.sent_on = false;
        let slot = replica.requests.keep(s);
        (slot, replica.handover.target.keep(incoming))
    }

    /// Records that a request has blocks for its prompt, of which `blocks` are read from the other machine.
    pub(in crate::machine) fn blocks_reserved(&mut self, slot: Slot, blocks: u64) {
        let s = &mut self.replica.requests[slot];
        s.handover.blocks = blocks;
        s.handover.capacity_wait_ns = self.now_ns - s.since_ns;
    }

    /// Begins to read a prompt, or notifies the other machine that it is not read.
    pub(in crate::machine) fn read(&mut self, reading: Reading) -> Answer<()> {
        let Reading { incoming, blocks } = reading;
        let (replica, mut now) = self.at_work();
        if blocks == 0 {
            let gone = replica.handover.target.take(incoming);
            replica.notify_read(gone.source);
            return Ok(());
        }
        let Some(how) = replica.config.role.receives() else {
            return Ok(());
        };
        let wire = replica.handover.target.of(incoming).route.wire.clone();
        let hop = Hop {
            is_first: true,
            is_last: true,
            ..Hop::over(incoming, wire, false)
        };
        let route = Route::new(how.remote, GPU);
        replica.mover.send_hop(&mut now, hop, route, blocks, &[])?;
        replica.log_transfers();
        Ok(())
    }

    /// Ends a request's hand-over: its KV is here.
    pub(in crate::machine) fn prompt_is_here(&mut self, slot: Slot) {
        let (replica, now) = self.at_work();
        let s = &mut replica.requests[slot];
        s.ttft.handover_ns += now.ns - s.since_ns;
        s.since_ns = now.ns;
        let (request, blocks) = (u64::from(s.arrival.request), s.handover.blocks);
        let records = now.store.records_mut();
        records.note(Record::Handover as u8, now.ns, request, blocks);
    }

    /// Admits a request whose prompt was computed elsewhere: what was cached is known from there.
    pub(in crate::machine) fn continues(
        &mut self,
        slot: Slot,
        cached: Cached,
        log: &mut Option<ScheduleLog>,
    ) {
        let (replica, mut now) = self.at_work();
        replica.admitted(&mut now, slot, cached.blocks);
        let request = replica.requests[slot].arrival.request;
        if let Some(log) = log {
            log.admitted(request, cached.tokens, true);
        }
    }
}

impl Replica {
    /// Notifies a machine that its prompt needs no blocks there any more.
    fn notify_read(&mut self, SlotOn { machine, slot }: SlotOn) {
        let release = Task::Release(slot, true);
        self.handover.messages.push(Message::Send(machine, release));
    }

    /// Messages to other machines since the last call.
    pub fn take_messages(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.handover.messages)
    }

    /// True if there are hand-overs from or to this machine.
    pub fn has_role(&self) -> bool {
        self.config.role.hands_over()
    }
}
