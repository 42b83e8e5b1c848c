//! Prompts that another machine decodes, or has computed (the scheduler side of `NixlPullConnector`, vLLM 0.33.0).
//!
//! A computed prompt keeps its blocks until it has been read. The machine that decodes gives it blocks for all its
//! tokens, reads what it lacks from the begin of that step on, and computes its last token. Both learn at the end of a
//! step which reads have ended. Source: `vllm/distributed/kv_transfer/kv_connector/v1/nixl/pull_scheduler.py`.

use super::super::engine::Desk;
use super::super::messages::{Incoming, Reading};
use super::super::Slot;
use super::blocks::Blocks;
use super::remote::release;
use super::{Sequence, VllmScheduler};
use crate::store::Answer;

impl<B: Blocks> VllmScheduler<B> {
    /// Hands over a running request that has its first token.
    pub(super) fn hand_over(&mut self, desk: &mut Desk<'_, B>, slot: Slot) {
        let s = &mut self.sequences[slot];
        (s.is_running, s.is_done) = (false, true);
        self.remote.unread.push((slot, s.held.lease));
        self.running.retain(|&running| running != slot);
        desk.handed_over(slot);
    }

    /// Releases the prompts that have been read since the last step ended.
    pub(super) fn release_read(&mut self, desk: &mut Desk<'_, B>) -> Answer<()> {
        for slot in std::mem::take(&mut self.remote.read) {
            let mut unread = self.remote.unread.iter();
            let Some(at) = unread.position(|&(other, _)| other == slot) else {
                continue;
            };
            let (_, lease) = self.remote.unread.remove(at);
            release(desk.store, lease, desk.now_ns)?;
            desk.replica.requests.free(slot);
        }
        Ok(())
    }

    /// Queues a request whose prompt another machine has computed.
    pub(super) fn handed_over(&mut self, desk: &mut Desk<'_, B>, incoming: Incoming) -> Answer<()> {
        // it comes after the boundaries of this instant
        self.advance(desk, desk.now_ns + 1)?;
        let (slot, incoming) = desk.received(incoming);
        let mut sequence = Sequence::new(&desk.replica.requests[slot]);
        sequence.position.arrival_ns = desk.now_ns;
        sequence.was_admitted = true;
        sequence.held.incoming = Some(incoming);
        self.queue(desk, slot, sequence)
    }

    /// Ends a request's wait for blocks: its load begins with the step that is composed.
    pub(super) fn loads(&mut self, desk: &mut Desk<'_, B>, slot: Slot) {
        let (s, config) = (&self.sequences[slot], &self.config);
        let Some(incoming) = s.held.incoming else {
            return desk.loads(slot);
        };
        let blocks = config.blocks(s.prompt) - u64::from(s.held.load_from);
        self.remote.readings.push(Reading { incoming, blocks });
        desk.blocks_reserved(slot, blocks);
    }
}
