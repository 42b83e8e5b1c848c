//! The sending side: computed prompts of a prefill machine, and the times of their layers (the rules of
//! `spec/handover.py`).

use crate::machine::messages::{Message, Question, SlotOn};
use crate::machine::{Now, Replica, Slot};
use crate::store::Answer;
use crate::transfers::Transmission;

impl Replica {
    /// True if a request is decoded on another machine after its prompt.
    pub(in crate::machine) fn hands_over(&self, slot: Slot) -> bool {
        let output_tokens = self.requests[slot].arrival.output_tokens;
        self.config.role.sends().is_some() && output_tokens > 1
    }

    /// True if layers leave as they are computed: the machine then takes one step at a time.
    pub(in crate::machine) fn streams(&self) -> bool {
        let how = self.config.role.sends();
        how.is_some_and(|how| how.layer_by_layer)
    }

    /// Announces the prompts that a step finishes: their layers are computed evenly up to its end.
    pub(in crate::machine) fn announce(&mut self, end_ns: u64, now_ns: u64) {
        let compute_ns = self.batch.step_ns();
        let layer_ns = compute_ns / self.batch.num_layers().max(1);
        let begin_ns = end_ns - compute_ns;
        let computed = Transmission {
            start_ns: begin_ns,
            first_layer_ns: (begin_ns + layer_ns).max(now_ns),
            completion_ns: end_ns,
            per_layer_ns: layer_ns,
        };
        for slot in self.batch.first_tokens_due() {
            if self.hands_over(slot) {
                self.announce_prompt(slot, Some(computed));
            }
        }
    }

    /// Hands a request over: the step that computed its prompt has ended.
    pub(in crate::machine) fn prompt_computed(&mut self, now: &mut Now<'_>, slot: Slot) {
        let Some(how) = self.config.role.sends() else {
            return;
        };
        self.prompt_over(slot, now.ns);
        if how.first_token_at_prefill {
            self.show_first_token(now, slot);
        }
        self.prefill_load.remove();
        let s = &mut self.requests[slot];
        s.handover.sent_on = true;
        s.handover.prefill_machine = Some(self.config.machine);
        let request = Box::new(s.clone());
        if !how.layer_by_layer {
            self.announce_prompt(slot, None);
        }
        self.handover
            .messages
            .push(Message::Prefilled { slot, request });
    }

    fn announce_prompt(&mut self, slot: Slot, computed: Option<Transmission>) {
        let s = &self.requests[slot];
        self.handover.messages.push(Message::Announced(Question {
            source: SlotOn {
                machine: self.machine(),
                slot,
            },
            arrival: s.arrival,
            arrival_ns: s.arrival_ns,
            computed,
        }));
    }

    /// Releases the blocks of a request that has been handed over. `seen_ns`: iterations that begin before it are
    /// past.
    pub(in crate::machine) fn release_sent(
        &mut self,
        now: &mut Now<'_>,
        slot: Slot,
        seen_ns: u64,
    ) -> Answer<()> {
        self.catch_up(now, seen_ns)?;
        self.release(now, slot)?;
        self.requests.free(slot);
        self.resume(now, seen_ns)
    }
}
