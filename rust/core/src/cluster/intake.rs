//! Requests that have not arrived yet, in order of arrival, and the length limits of the machines they are sent to.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::machine::messages::SlotOn;
use crate::machine::Arrival;

/// A request that will arrive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coming {
    /// The arrival itself.
    pub arrival: Arrival,
    /// Time of the arrival.
    pub at_ns: u64,
    /// Time from the arrival to the client's abort; `None`: never.
    pub abort_after_ns: Option<u64>,
}

/// An event outside the machines.
#[derive(Clone, Copy, Debug)]
pub enum Outside {
    /// A request arrives.
    Comes(Coming),
    /// A request that has arrived reaches its machine's scheduler.
    Reaches(SlotOn, u64),
    /// The client of a request that was sent to a machine aborts it.
    Aborts {
        /// The machine.
        machine: u32,
        /// The request.
        request: u32,
        /// Time of the abort.
        at_ns: u64,
    },
}

/// Limits of a machine for one request.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    /// Upper bound on the tokens of a prompt.
    pub prompt_tokens: u64,
    /// Upper bound on the tokens with KV of a finished request that has any beyond its prompt.
    pub kv_tokens: u64,
}

/// Future requests, a part of them at a time, and the limits of the machines.
///
/// ```
/// use kvsim_core::cluster::intake::{Coming, Holds, Intake, Outside};
/// use kvsim_core::machine::Arrival;
///
/// let holds = Holds { prompt_tokens: 100, kv_tokens: 110 };
/// let mut intake = Intake::new(vec![holds]);
/// let arrival = Arrival { prompt_tokens: 100, output_tokens: 11, ..Arrival::default() };
/// intake.feed([Coming { arrival, at_ns: 7, abort_after_ns: Some(2) }]);
/// assert_eq!(intake.next_ns(), Some(7));
/// let Some(Outside::Comes(coming)) = intake.take() else { panic!() };
/// assert!(intake.fits(0, &coming.arrival)); // 110 tokens: the last one generated never gets KV
/// intake.sent(&coming, 0);
/// assert!(intake.is_empty());
/// assert_eq!(intake.next_ns(), Some(9));
/// ```
#[derive(Debug)]
pub struct Intake {
    coming: VecDeque<Coming>,
    /// Client aborts: time, index among the requests sent, machine, request.
    aborted: BinaryHeap<Reverse<(u64, u64, u32, u32)>>,
    /// Requests in transit to a scheduler: time, machine, index among all, slot.
    travelling: BinaryHeap<Reverse<(u64, u32, u64, u32)>>,
    travelled: u64,
    sent: u64,
    holds: Vec<Holds>,
}

impl Intake {
    /// An intake without requests; `holds`: the limits of each machine.
    pub fn new(holds: Vec<Holds>) -> Self {
        Self {
            coming: VecDeque::new(),
            aborted: BinaryHeap::new(),
            travelling: BinaryHeap::new(),
            travelled: 0,
            sent: 0,
            holds,
        }
    }

    /// Appends requests, in order of arrival.
    pub fn feed(&mut self, coming: impl IntoIterator<Item = Coming>) {
        self.coming.extend(coming);
    }

    /// True if no request is left to arrive.
    pub fn is_empty(&self) -> bool {
        self.coming.is_empty()
    }

    /// Time of the next event.
    pub fn next_ns(&self) -> Option<u64> {
        let coming = self.coming.front().map(|coming| coming.at_ns);
        let aborted = self.aborted.peek().map(|&Reverse((at_ns, ..))| at_ns);
        let reaches = self.travelling.peek().map(|&Reverse((at_ns, ..))| at_ns);
        coming.into_iter().chain(aborted).chain(reaches).min()
    }

    /// Takes the next event: at an instant, aborts come before arrivals, and these before what reaches a scheduler.
    pub fn take(&mut self) -> Option<Outside> {
        if let Some(&Reverse((at_ns, machine, _, slot))) = self.travelling.peek() {
            let coming = self.coming.front().map(|coming| coming.at_ns);
            let aborted = self.aborted.peek().map(|&Reverse((at_ns, ..))| at_ns);
            if coming
                .into_iter()
                .chain(aborted)
                .all(|other_ns| at_ns < other_ns)
            {
                self.travelling.pop();
                return Some(Outside::Reaches(SlotOn { machine, slot }, at_ns));
            }
        }
        let coming_ns = self.coming.front().map(|coming| coming.at_ns);
        if let Some(&Reverse((at_ns, _, machine, request))) = self.aborted.peek() {
            if coming_ns.is_none_or(|coming_ns| at_ns <= coming_ns) {
                self.aborted.pop();
                return Some(Outside::Aborts {
                    machine,
                    request,
                    at_ns,
                });
            }
        }
        self.coming.pop_front().map(Outside::Comes)
    }

    /// Records that a request reaches a scheduler at a time.
    pub fn travels(&mut self, SlotOn { machine, slot }: SlotOn, at_ns: u64) {
        let entry = (at_ns, machine, self.travelled, slot);
        self.travelling.push(Reverse(entry));
        self.travelled += 1;
    }

    /// Records that a request has been sent to a machine, in case its client aborts it.
    pub fn sent(&mut self, coming: &Coming, machine: u32) {
        if let Some(after_ns) = coming.abort_after_ns {
            let at_ns = coming.at_ns.saturating_add(after_ns);
            let entry = (at_ns, self.sent, machine, coming.arrival.request);
            self.aborted.push(Reverse(entry));
            self.sent += 1;
        }
    }

    /// True if a machine can serve a request; a request that does not fit is rejected.
    pub fn fits(&self, machine: u32, arrival: &Arrival) -> bool {
        let (prompt, answer) = (arrival.prompt_tokens, arrival.output_tokens);
        let kv_tokens = prompt + answer.max(1) - 1;
        let holds = self.holds[machine as usize];
        prompt <= holds.prompt_tokens && (kv_tokens <= prompt || kv_tokens <= holds.kv_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a prompt and its answer fit a machine that holds so many tokens of a prompt and of a whole request.
    fn fits(prompt_tokens: u64, kv_tokens: u64, prompt: u64, answer: u64) -> bool {
        let holds = Holds {
            prompt_tokens,
            kv_tokens,
        };
        let arrival = Arrival {
            prompt_tokens: prompt,
            output_tokens: answer,
            ..Arrival::default()
        };
        Intake::new(vec![holds]).fits(0, &arrival)
    }

    #[test]
    fn a_prompt_and_its_answer_have_limits() {
        assert!(fits(10, 10, 10, 1));
        assert!(!fits(10, 10, 10, 2));
        assert!(!fits(10, 99, 11, 1));
        assert!(fits(10, 12, 10, 3));
        assert!(!fits(10, 12, 10, 4));
        // Without tokens beyond its prompt, a request does not use a decode machine.
        assert!(fits(10, 0, 10, 0));
    }
    #[test]
    fn at_one_instant_clients_leave_then_requests_come_then_those_sent_reach_their_machines() {
        let arrival = Arrival::default();
        let coming = |at_ns, abort_after_ns| Coming {
            at_ns,
            arrival,
            abort_after_ns,
        };
        let mut intake = Intake::new(vec![]);
        intake.sent(&coming(4, Some(6)), 0);
        intake.travels(
            SlotOn {
                machine: 0,
                slot: 1,
            },
            10,
        );
        intake.travels(
            SlotOn {
                machine: 0,
                slot: 2,
            },
            9,
        );
        intake.feed([coming(10, None)]);
        let order = std::iter::from_fn(|| intake.take()).map(|outside| match outside {
            Outside::Reaches(_, at_ns) => ("reaches", at_ns),
            Outside::Aborts { at_ns, .. } => ("leaves", at_ns),
            Outside::Comes(coming) => ("comes", coming.at_ns),
        });
        assert_eq!(
            order.collect::<Vec<_>>(),
            [
                ("reaches", 9),
                ("leaves", 10),
                ("comes", 10),
                ("reaches", 10)
            ]
        );
    }
}
