//! Outputs of machines, for clients that wait for them (live runs).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

    pub(super) fn add(&self, machine: u32, time_ns: u64, add: impl FnOnce(&mut Output)) {
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
