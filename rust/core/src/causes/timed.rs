//! Timed runs: causes of each request's misses, computed after the run from its table of requests.
//!
//! A token is identified by its id and all ids before it. If a request misses a token that its machine
//! has computed, the token was evicted or not ready yet. The run itself records nothing more.

use super::history::{History, ROOT};
use super::prompt::PromptMisses;
use super::{MissCause, TokensByCause};

/// A finished run, one entry per request (except `id_offsets` and `ids`); times in ns.
#[derive(Debug, Clone, Copy)]
pub struct TimedRun<'a> {
    /// Request `r` has the ids `ids[id_offsets[r]..id_offsets[r + 1]]`.
    pub id_offsets: &'a [i64],
    /// Ids of all requests.
    pub ids: &'a [u32],
    /// Tokens per id.
    pub id_tokens: i64,
    /// Tokens per block of the cache.
    pub block_tokens: i64,
    /// Turn whose ids name the request's answer; negative for none.
    pub continuation: &'a [i32],
    /// True if the request finished; other requests have no misses and show nothing.
    pub finished: &'a [bool],
    /// Machine that computed the prompt.
    pub machine: &'a [i64],
    /// Machine that the prompt was handed to and that computed the answer; negative: the same one.
    pub decode_machine: &'a [i64],
    /// Tokens of the prompt.
    pub input_tokens: &'a [i64],
    /// Tokens of the answer.
    pub output_tokens: &'a [i64],
    /// Prompt tokens served from cache at the first admission.
    pub cached_tokens: &'a [i64],
    /// Time of the first admission.
    pub admitted_ns: &'a [i64],
    /// Time of the first token, when the prompt's KV is complete.
    pub first_token_ns: &'a [i64],
    /// Time at which the request finished.
    pub finish_ns: &'a [i64],
    /// Tokens that part of the cache had, a layer group or a lower tier, beyond the cached ones; 0 for none.
    pub junction_tokens: &'a [i64],
    /// Cause of their miss: index in [`JUNCTION_CAUSES`].
    pub junction_cause: &'a [u8],
    /// True if the cache admits all blocks and keeps them reachable. If false, a block that was ready and is
    /// missed counts as not admitted.
    pub kept: bool,
}

/// Causes of a junction: a window or a state was not kept there, or what was found was not loaded.
pub const JUNCTION_CAUSES: [MissCause; 3] = [
    MissCause::WindowMovedOn,
    MissCause::NoCheckpoint,
    MissCause::NotLoaded,
];

/// Reason why a run cannot be analyzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimedRunError {
    /// The columns differ in length.
    Shape,
    /// The ids of a request are out of range, or its continuation is no request.
    Ids(usize),
    /// The tokens or the machine of a request are invalid.
    Request(usize),
}

/// Misses of a run, one entry per request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimedMisses {
    /// Missed tokens by cause; for a finished request they sum to prompt minus cached tokens.
    pub tokens: Vec<TokensByCause>,
    /// Longest time since the last use of a block counted as evicted, −1 without such a block.
    pub evicted_idle_ns: Vec<i64>,
}

impl TimedRun<'_> {
    fn check(&self) -> Result<(), TimedRunError> {
        let n = self.finished.len();
        let columns = [
            self.machine.len(),
            self.decode_machine.len(),
            self.input_tokens.len(),
            self.output_tokens.len(),
            self.cached_tokens.len(),
            self.admitted_ns.len(),
            self.first_token_ns.len(),
            self.finish_ns.len(),
            self.continuation.len(),
            self.junction_tokens.len(),
            self.junction_cause.len(),
        ];
        let fits = columns.iter().all(|&len| len == n) && self.id_offsets.len() == n + 1;
        if !fits || self.id_tokens < 1 || self.block_tokens < 1 {
            return Err(TimedRunError::Shape);
        }
        for r in 0..n {
            let (from, to) = (self.id_offsets[r], self.id_offsets[r + 1]);
            let inside = 0 <= from && from <= to && to <= self.ids.len() as i64;
            if !inside || i64::from(self.continuation[r]) >= n as i64 {
                return Err(TimedRunError::Ids(r));
            }
            let (prompt, cached) = (self.input_tokens[r], self.cached_tokens[r]);
            let tokens = (0..1 << 40).contains(&prompt)
                && (0..1 << 40).contains(&self.output_tokens[r])
                && (0..=prompt).contains(&cached)
                && (0..=prompt).contains(&self.junction_tokens[r])
                && usize::from(self.junction_cause[r]) < JUNCTION_CAUSES.len();
            let on_machines =
                (0..1 << 20).contains(&self.machine[r]) && self.decode_machine[r] < 1 << 20;
            if self.finished[r] && !(tokens && on_machines) {
                return Err(TimedRunError::Request(r));
            }
        }
        Ok(())
    }

    fn ids_of(&self, request: usize) -> &[u32] {
        &self.ids[self.id_offsets[request] as usize..self.id_offsets[request + 1] as usize]
    }

    /// Counts every missed token under one cause, requests in order of admission.
    ///
    /// Cost: O(ids) and a sort of the requests; 16 bytes per id of each machine that showed it, in pages of 256 ids.
    pub fn misses(&self) -> Result<TimedMisses, TimedRunError> {
        self.check()?;
        let n = self.finished.len();
        let mut out = TimedMisses {
            tokens: vec![TokensByCause::default(); n],
            evicted_idle_ns: vec![-1; n],
        };
        let mut history = History::new(self.ids);
        let (mut path, mut answer) = (Vec::new(), Vec::new());
        let mut order: Vec<usize> = (0..n).filter(|&r| self.finished[r]).collect();
        order.sort_by_key(|&r| (self.admitted_ns[r], r));
        for r in order {
            let machine = self.machine[r] as usize;
            let (prompt, last_ns) = (self.input_tokens[r], self.finish_ns[r]);
            path.clear();
            history.paths.follow(self.ids_of(r), ROOT, &mut path);
            (out.tokens[r], out.evicted_idle_ns[r]) = self.look_up(r, &path, &history);
            let blocks = prompt / self.block_tokens * self.block_tokens;
            let whole = (blocks as u64).div_ceil(self.id_tokens as u64) as usize;
            let whole = whole.max((prompt / self.id_tokens) as usize);
            let shown = &path[..whole.min(path.len())];
            history.show(machine, shown, self.first_token_ns[r], last_ns);
            let handed_to = self.decode_machine[r];
            let answers = if handed_to < 0 {
                machine
            } else {
                history.show(handed_to as usize, shown, self.first_token_ns[r], last_ns);
                handed_to as usize
            };
            let next = self.continuation[r];
            if next >= 0 && whole as i64 * self.id_tokens <= prompt {
                // An answer has the next turn's ids only where no block is named by an id of its own.
                let own = (prompt / self.id_tokens) as usize;
                let end = (prompt + self.output_tokens[r].max(1) - 1) / self.id_tokens;
                let ids = self.ids_of(next as usize);
                let ids = ids
                    .get(own..(end as usize).min(ids.len()))
                    .unwrap_or_default();
                let before = match own {
                    0 => Some(ROOT),
                    _ => path.get(own - 1).copied(),
                };
                if let Some(before) = before {
                    answer.clear();
                    history.paths.follow(ids, before, &mut answer);
                    history.show(answers, &answer, last_ns, last_ns);
                }
            }
        }
        Ok(out)
    }

    /// Returns the misses of one request, and the longest idle time of its evicted blocks.
    fn look_up(&self, r: usize, path: &[u32], history: &History) -> (TokensByCause, i64) {
        let (machine, now_ns) = (self.machine[r] as usize, self.admitted_ns[r]);
        let (prompt, cached) = (self.input_tokens[r], self.cached_tokens[r]);
        let may_hit = (prompt - 1).div_euclid(self.block_tokens) * self.block_tokens;
        let mut misses = PromptMisses::after(cached as u64);
        let (mut at, mut idle_ns) = (cached.max(self.junction_tokens[r]), -1);
        misses.until(
            at as u64,
            JUNCTION_CAUSES[usize::from(self.junction_cause[r])],
        );
        let (mut block_end, mut is_partial) = (at, false);
        while at < may_hit {
            let k = (at / self.id_tokens) as usize;
            if at >= block_end {
                block_end = (at / self.block_tokens + 1) * self.block_tokens;
                let last = ((block_end - 1) / self.id_tokens) as usize;
                let is_new = |k| path.get(k).is_none_or(|&slot| !history.was_shown(slot));
                is_partial = (k..=last).any(is_new);
            }
            let Some(&slot) = path.get(k) else {
                let new = misses.new_block(|| false); // the trace names no id here
                misses.until(may_hit as u64, new);
                break;
            };
            at = ((k as i64 + 1) * self.id_tokens)
                .min(block_end)
                .min(may_hit);
            let cause = match history.machines.use_of(machine, slot) {
                _ if is_partial && history.was_shown(slot) => MissCause::PartialBlock,
                Some(here) if here.ready_ns > now_ns => MissCause::NotReady,
                Some(here) => {
                    idle_ns = idle_ns.max((now_ns - here.used_ns).max(0));
                    if self.kept {
                        MissCause::Evicted
                    } else {
                        MissCause::NotAdmitted
                    }
                }
                None if history.was_shown(slot) => MissCause::Elsewhere,
                None => misses.new_block(|| k > 0 && history.continued(path[k - 1])),
            };
            misses.until(at as u64, cause);
        }
        (misses.end(prompt as u64), idle_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Time of admission, ids, machine.
    type Row = (i64, [u32; 2], i64);

    /// Requests of two ids of 64 tokens and one more token, which finish 10 ns after they are admitted.
    fn causes(rows: &[Row], cached: &[i64], kept: bool) -> TokensByCause {
        let n = rows.len();
        let column = |of: fn(&Row) -> i64| rows.iter().map(of).collect::<Vec<_>>();
        let ids: Vec<u32> = rows.iter().flat_map(|row| row.1).collect();
        let offsets: Vec<i64> = (0..=n as i64).map(|r| 2 * r).collect();
        let run = TimedRun {
            id_offsets: &offsets,
            ids: &ids,
            id_tokens: 64,
            block_tokens: 16,
            continuation: &vec![-1; n],
            finished: &vec![true; n],
            machine: &column(|row| row.2),
            decode_machine: &vec![-1; n],
            input_tokens: &vec![129; n],
            output_tokens: &vec![1; n],
            cached_tokens: cached,
            admitted_ns: &column(|row| row.0),
            first_token_ns: &column(|row| row.0 + 10),
            finish_ns: &column(|row| row.0 + 10),
            junction_tokens: &vec![0; n],
            junction_cause: &vec![0; n],
            kept,
        };
        let misses = run.misses().unwrap();
        *misses.tokens.last().unwrap()
    }

    #[test]
    fn each_cause_differs_from_the_others() {
        let (first, again) = ((0, [0, 1], 0), (100, [0, 1], 0));
        assert_eq!(
            causes(&[first], &[0], true),
            [128, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            causes(&[first, again], &[0, 64], true),
            [0, 0, 64, 1, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            causes(&[first, again], &[0, 64], false),
            [0, 0, 0, 1, 0, 0, 64, 0, 0, 0, 0]
        );
        let soon = (9, [0, 1], 0);
        assert_eq!(
            causes(&[first, soon], &[0, 0], true),
            [0, 0, 0, 1, 128, 0, 0, 0, 0, 0, 0]
        );
        let other = (100, [0, 1], 1);
        assert_eq!(
            causes(&[first, other], &[0, 0], true),
            [0, 0, 0, 1, 0, 128, 0, 0, 0, 0, 0]
        );
        let parted = (100, [0, 2], 0);
        assert_eq!(
            causes(&[first, parted], &[0, 64], true),
            [0, 64, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn an_id_after_another_parent_is_another_node() {
        let moved = (100, [1, 0], 0);
        assert_eq!(
            causes(&[(0, [0, 1], 0), moved], &[0, 0], true),
            [128, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
        );
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let run = TimedRun {
            id_offsets: &[0, 3],
            ids: &[0],
            id_tokens: 64,
            block_tokens: 16,
            continuation: &[-1],
            finished: &[true],
            machine: &[0],
            decode_machine: &[-1],
            input_tokens: &[1],
            output_tokens: &[1],
            cached_tokens: &[0],
            admitted_ns: &[0],
            first_token_ns: &[0],
            finish_ns: &[0],
            junction_tokens: &[0],
            junction_cause: &[0],
            kept: true,
        };
        assert_eq!(run.misses().unwrap_err(), TimedRunError::Ids(0));
        let run = TimedRun {
            id_offsets: &[0, 1],
            cached_tokens: &[2],
            ..run
        };
        assert_eq!(run.misses().unwrap_err(), TimedRunError::Request(0));
    }
}
