//! Requests on their way to the machines, in order of arrival: and who is too long for the machine it is sent to.

use std::collections::VecDeque;

use super::Arrival;

/// A request that will come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Coming {
    /// As it will come.
    pub arrival: Arrival,
    /// When it will.
    pub at_ns: u64,
}

/// What a machine can hold of one request.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    /// Tokens of a prompt.
    pub prompt_tokens: u64,
    /// Tokens with KV when it is done, where it has any beyond its prompt.
    pub kv_tokens: u64,
}

/// Requests that will come, some at a time, and what the machines can hold.
///
/// ```
/// use kvsim_core::serving::intake::{Coming, Holds, Intake};
/// use kvsim_core::serving::Arrival;
///
/// let holds = Holds { prompt_tokens: 100, kv_tokens: 110 };
/// let mut intake = Intake::new(vec![holds], None);
/// let arrival = Arrival { prompt_tokens: 100, output_tokens: 11, ..Arrival::default() };
/// intake.feed([Coming { arrival, at_ns: 7 }]);
/// assert_eq!(intake.next_ns(), Some(7));
/// let coming = intake.take().unwrap();
/// assert!(intake.fits(0, &coming.arrival)); // 110 tokens: the last one generated never gets KV
/// assert!(intake.is_empty());
/// ```
#[derive(Debug)]
pub struct Intake {
    coming: VecDeque<Coming>,
    holds: Vec<Holds>,
    /// Most tokens of a prompt and its answer.
    window_tokens: Option<u64>,
}

impl Intake {
    /// With nothing to come; what each machine holds, and the most tokens of a prompt and its answer.
    pub fn new(holds: Vec<Holds>, window_tokens: Option<u64>) -> Self {
        Self {
            coming: VecDeque::new(),
            holds,
            window_tokens,
        }
    }

    /// Adds requests behind those that are to come, in order of arrival.
    pub fn feed(&mut self, coming: impl IntoIterator<Item = Coming>) {
        self.coming.extend(coming);
    }

    /// Whether all that was told of has come.
    pub fn is_empty(&self) -> bool {
        self.coming.is_empty()
    }

    /// When the next one comes.
    pub fn next_ns(&self) -> Option<u64> {
        self.coming.front().map(|coming| coming.at_ns)
    }

    /// Takes the next one.
    pub fn take(&mut self) -> Option<Coming> {
        self.coming.pop_front()
    }

    /// Whether a machine can serve a request; one that does not fit is rejected.
    pub fn fits(&self, machine: u32, arrival: &Arrival) -> bool {
        let (prompt, answer) = (arrival.prompt_tokens, arrival.output_tokens);
        let kv_tokens = prompt + answer.max(1) - 1;
        let holds = self.holds[machine as usize];
        self.window_tokens
            .is_none_or(|most| prompt + answer <= most)
            && prompt <= holds.prompt_tokens
            && (kv_tokens <= prompt || kv_tokens <= holds.kv_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(holds: (u64, u64), window: Option<u64>, prompt: u64, answer: u64) -> bool {
        let holds = Holds {
            prompt_tokens: holds.0,
            kv_tokens: holds.1,
        };
        let arrival = Arrival {
            prompt_tokens: prompt,
            output_tokens: answer,
            ..Arrival::default()
        };
        Intake::new(vec![holds], window).fits(0, &arrival)
    }

    #[test]
    fn a_prompt_its_answer_and_the_window_have_limits() {
        assert!(fits((10, 10), None, 10, 1));
        assert!(!fits((10, 10), None, 10, 2));
        assert!(!fits((10, 99), None, 11, 1));
        assert!(fits((10, 12), None, 10, 3));
        assert!(!fits((10, 12), None, 10, 4));
        // Without tokens beyond its prompt nothing is asked of who decodes.
        assert!(fits((10, 0), None, 10, 0));
        assert!(fits((99, 99), Some(12), 10, 2));
        assert!(!fits((99, 99), Some(12), 10, 3));
    }
}
