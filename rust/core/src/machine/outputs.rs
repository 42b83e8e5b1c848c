//! Tokens and requests that leave machines, each with its time, for clients that wait for them (live runs).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Replica;

/// Outputs of one machine at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Time of the outputs.
    pub time_ns: u64,
    /// The machine's number.
    pub machine: u32,
    /// The request of each token, in the order of the tokens.
    pub tokens: Vec<u32>,
    /// Requests that finished, or whose clients aborted them.
    pub closed: Vec<u32>,
}

/// Outputs of all machines that share the log and that have not been taken yet.
#[derive(Clone, Debug, Default)]
pub struct OutputLog(Arc<Mutex<Vec<Output>>>);

impl OutputLog {
    /// Takes the outputs since the last call, in order of time; at one time, in the order of the events.
    ///
    /// ```
    /// use kvsim_core::machine::OutputLog;
    /// assert!(OutputLog::default().take().is_empty());
    /// ```
    pub fn take(&self) -> Vec<Output> {
        let mut outputs = std::mem::take(&mut *self.locked());
        outputs.sort_by_key(|output| output.time_ns);
        outputs
    }

    fn locked(&self) -> MutexGuard<'_, Vec<Output>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, machine: u32, time_ns: u64, add: impl FnOnce(&mut Output)) {
        let mut outputs = self.locked();
        let last = outputs.last_mut();
        if let Some(last) = last.filter(|last| (last.time_ns, last.machine) == (time_ns, machine)) {
            return add(last);
        }
        let mut output = Output {
            time_ns,
            machine,
            ..Output::default()
        };
        add(&mut output);
        outputs.push(output);
    }
}

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
