//! Tokens and requests that leave machines, each with its time, for clients that wait for them (live runs).

use super::output_log::OutputLog;
use super::Replica;

impl Replica {
    /// Logs tokens and closed requests from now on; steps run one by one from then on.
    pub fn log_outputs(&mut self, log: OutputLog) {
        self.reports.outputs = Some(log);
        self.batch.log_later_tokens();
    }

    /// True if tokens are logged, so that every step needs a boundary of its own.
    pub(super) fn logs_outputs(&self) -> bool {
        self.reports.outputs.is_some()
    }

    /// Logs a request's next token.
    pub(super) fn log_token(&mut self, request: u32, now_ns: u64) {
        if let Some(log) = &self.reports.outputs {
            log.add(self.machine(), now_ns, |output| output.tokens.push(request));
        }
    }

    /// Logs the tokens after the first one that a step of the batch brought.
    pub(super) fn log_later_tokens(&mut self, now_ns: u64) {
        let Some(log) = &self.reports.outputs else {
            return;
        };
        let later = self.batch.take_later_tokens();
        if later.is_empty() {
            return;
        }
        let requests = &self.requests;
        let numbers = later.iter().map(|&slot| requests[slot].arrival.request);
        log.add(self.machine(), now_ns, |output| {
            output.tokens.extend(numbers);
        });
    }

    /// Records that a request has finished or was aborted.
    pub(super) fn note_closed(&mut self, request: u32, now_ns: u64) {
        self.reports.closed.push(request);
        self.mover.request_leaves();
        if let Some(log) = &self.reports.outputs {
            log.add(self.machine(), now_ns, |output| output.closed.push(request));
        }
    }
}
