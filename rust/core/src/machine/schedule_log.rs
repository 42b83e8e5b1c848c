//! Log of a schedule: steps, admissions and their totals.

use crate::step_time::StepShape;

/// One step: its start, its tokens, and the numbers of running and waiting requests once it was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepLine {
    /// Start of its execution.
    pub start_ns: u64,
    /// Tokens of requests that did not decode.
    pub prefill_tokens: u64,
    /// Requests that decoded one token.
    pub decode_tokens: u64,
    /// Requests that ran.
    pub running: u64,
    /// Requests that waited.
    pub waiting: u64,
}

/// Totals of a schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScheduleCounts {
    /// Tokens of all steps.
    pub scheduled_tokens: u64,
    /// Requests sent back to the queue.
    pub preemptions: u64,
    /// Admissions after a preemption.
    pub readmissions: u64,
    /// Cached tokens of first admissions.
    pub hit_tokens_first: u64,
    /// Cached tokens of later admissions.
    pub hit_tokens_readmitted: u64,
    /// End of the last step.
    pub end_ns: u64,
    /// Most requests that ran after a schedule.
    pub max_running: u64,
    /// Most requests that waited after a schedule.
    pub max_waiting: u64,
    /// Schedules that computed nothing.
    pub zero_token_steps: u64,
}

/// Every step and every admission so far.
#[derive(Clone, Debug, Default)]
pub struct ScheduleLog {
    /// The totals.
    pub counts: ScheduleCounts,
    /// Steps in order.
    pub steps: Vec<StepLine>,
    /// Admissions: the step, the request, and its cached tokens.
    pub admissions: Vec<(u64, u32, u64)>,
    /// Finished requests: number, first and last token, first cached tokens, and preemptions.
    pub requests: Vec<(u32, u64, u64, u64, u32)>,
}

impl ScheduleLog {
    /// Records an admission to the step that is being composed.
    pub(super) fn admitted(&mut self, request: u32, cached_tokens: u64, first: bool) {
        self.admissions
            .push((self.steps.len() as u64, request, cached_tokens));
        if first {
            self.counts.hit_tokens_first += cached_tokens;
        } else {
            self.counts.readmissions += 1;
            self.counts.hit_tokens_readmitted += cached_tokens;
        }
    }

    /// Sets the start of the last step, which was delayed.
    pub(super) fn begins(&mut self, begin_ns: u64) {
        if let Some(last) = self.steps.last_mut() {
            last.start_ns = begin_ns;
        }
    }

    /// Records a decided step, and the numbers of running and waiting requests.
    pub(super) fn scheduled(
        &mut self,
        begin_ns: u64,
        shape: &StepShape,
        running: u64,
        waiting: u64,
    ) {
        let counts = &mut self.counts;
        counts.max_running = counts.max_running.max(running);
        counts.max_waiting = counts.max_waiting.max(waiting);
        let tokens = shape.new_tokens + shape.decode_sequences;
        counts.scheduled_tokens += tokens;
        if tokens == 0 {
            counts.zero_token_steps += 1;
            return;
        }
        self.steps.push(StepLine {
            start_ns: begin_ns,
            prefill_tokens: shape.new_tokens,
            decode_tokens: shape.decode_sequences,
            running,
            waiting,
        });
    }
}
