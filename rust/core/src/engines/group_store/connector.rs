//! The pool and its tier below vLLM's own scheduler (`OffloadingConnector`).

use super::{GroupStore, Running};
use crate::convert::fit;
use crate::engines::group_tier::bring::behind_pool;
use crate::engines::group_tier::connector::InStep;
use crate::engines::group_tier::{FoundBelow, Site};
use crate::engines::groups::admission::AdmissionLimits as Within;
use crate::engines::groups::tables::Table;
use crate::engines::groups::Found;
use crate::store::connector::{Connector, Ending, Scheduled, StepCopies};
use crate::store::newcomer::{Entry, Newcomer};
use crate::store::{Answer, LeaseId};

impl GroupStore {
    /// Returns true if a tier lies below that vLLM's scheduler reaches.
    pub fn has_connector(&self) -> bool {
        self.simple.is_some() || self.tier().is_some_and(|tier| tier.frees_unread_first())
    }

    /// Returns the number of free blocks.
    pub fn free_blocks(&self) -> u64 {
        u64::from(self.manager.pool.free_blocks())
    }

    /// Returns true if no copy is in flight, and none is decided with the next step of a request.
    pub fn is_quiet(&self, request: u32) -> bool {
        self.simple.is_none()
            && self
                .tier()
                .is_none_or(|tier| tier.is_quiet() && !tier.offers_more(&self.manager, request))
    }

    /// Returns true if a step without requests has copies to decide or to wait for.
    pub fn has_ended(&self) -> bool {
        let simple = self.simple.as_ref();
        simple.is_some_and(|tier| tier.has_ended())
            || self
                .tier()
                .is_some_and(|tier| !tier.connector.ended.is_empty())
    }

    /// Returns true if the next step may decide copies, though nothing else has changed.
    pub fn has_more(&self) -> bool {
        self.simple.as_ref().is_some_and(|tier| tier.has_more())
    }

    /// Returns the blocks that a running request may still take for `tokens` tokens.
    pub fn claim(&self, request: u32, tokens: u64, steps_in_flight: u64) -> u64 {
        let in_flight = steps_in_flight * self.manager.limits().max_num_batched_tokens;
        u64::from(self.manager.claim(request, tokens, in_flight))
    }

    /// Releases the blocks that are no longer read after `computed` tokens, then takes capacity up to `end` tokens.
    /// Returns false if fewer than `left` blocks were left.
    pub fn grow_above(
        &mut self,
        lease: LeaseId,
        computed: u64,
        end: u64,
        left: u64,
        now_ns: u64,
    ) -> Answer<bool> {
        let request = self.leases.admitted(lease)?.request;
        self.manager.computed_to(request, computed);
        self.manager.drop_unread(request);
        if u64::from(self.manager.lacking(request, end)) + left > self.free_blocks() {
            return Ok(false);
        }
        let before = self.manager.pool.counts().evicted;
        self.manager.take(request, end);
        let running = &mut self.running[request as usize];
        running.reserved_tokens = running.reserved_tokens.max(end);
        let evicted = self.manager.pool.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        Ok(true)
    }

    /// Admits a request with what the pool has, or lets it hold blocks for what the tier has behind that.
    pub fn admit_above(&mut self, asked: &Newcomer, now_ns: u64) -> Answer<Entry> {
        let (request, known) = (asked.request, asked.known_tokens);
        self.leases.known_request(request)?;
        self.manager.log_states();
        let in_pool = self
            .manager
            .look_up(request, self.tokens(asked.matchable_blocks));
        let Some(hit) = self.ask_tier(request, in_pool.tokens, known) else {
            return Ok(Entry::Later);
        };
        let (loads, found) = (
            hit > in_pool.tokens,
            Found {
                tokens: hit,
                ..in_pool
            },
        );
        let running = Running::admitted(asked, found);
        let tokens = asked.step_tokens.min(known - found.tokens);
        let end = match loads {
            true => hit,
            false => self.chunk_end(&running, hit, known, tokens),
        };
        if !loads && end <= hit && end < known {
            return Ok(Entry::NoTokens);
        }
        let looked = FoundBelow {
            found,
            pool_tokens: in_pool.tokens,
        };
        let (tables, lacking) = behind_pool(&self.manager, request, looked);
        if let Some(tier) = self.simple.as_mut().filter(|_| loads) {
            tier.hold(&self.manager, request, &lacking);
        }
        let is_deferred = !loads && hit < asked.least_cached_tokens;
        if is_deferred || self.manager.is_computed_now(request, in_pool.tokens) {
            return Ok(Entry::NotYet);
        }
        let Some(lease) = self.hold_above(asked, running, looked, (tables, end), now_ns)? else {
            return Ok(Entry::NoCapacity);
        };
        if let Some(tier) = &mut self.simple {
            tier.admitted(&mut self.manager, request, &lacking);
        } else if let Some(tier) = self.below.as_mut().filter(|_| loads) {
            tier.load_later(&self.manager, request, &lacking, hit);
        }
        let in_pool_blocks = fit::<u32>(in_pool.tokens / self.manager.align());
        Ok(match loads {
            true => Entry::Loads {
                lease,
                hit_tokens: hit,
                in_pool_blocks,
            },
            false => Entry::Admitted {
                lease,
                hit_blocks: in_pool_blocks,
                reserved_tokens: end,
            },
        })
    }

    /// Looks up a request behind the pool's hit; `None`: copies have not ended.
    fn ask_tier(&mut self, request: u32, in_pool: u64, known: u64) -> Option<u64> {
        if let Some(tier) = &mut self.simple {
            return Some(tier.look_up(&self.manager, request, in_pool, known));
        }
        let tier = self.below.as_mut()?;
        if tier.is_asked(self.manager.groups().len(), request) {
            return None;
        }
        tier.reached_in_time(&self.manager, request, in_pool, known)
    }

    /// Holds the blocks of an admission; `None`, with no change, if they do not fit.
    fn hold_above(
        &mut self,
        asked: &Newcomer,
        running: Running,
        looked: FoundBelow,
        (tables, end): (Vec<Table>, u64),
        now_ns: u64,
    ) -> Answer<Option<LeaseId>> {
        let (request, manager) = (asked.request, &mut self.manager);
        let loads_first = looked.found.tokens > looked.pool_tokens;
        // the state at the end of the pool's hit counts, though the load brings another
        let idle = if loads_first {
            manager.idle_states(request, looked.pool_tokens)
        } else {
            0
        };
        let kept = fit::<u32>(asked.kept_blocks) + idle;
        let limits = Within {
            blocks: manager.pool.free_blocks().saturating_sub(kept),
            claimed_blocks: if loads_first {
                fit::<u32>(asked.claimed_blocks)
            } else {
                0
            },
            loads_first,
            whole_tokens: asked.whole.then_some(asked.known_tokens),
            in_flight_tokens: asked.steps_in_flight * manager.limits().max_num_batched_tokens,
        };
        let before = manager.pool.counts().evicted;
        if !manager.admit_over(
            limits,
            request,
            asked.prompt_tokens,
            looked.found,
            tables,
            end,
        ) {
            return Ok(None);
        }
        let evicted = manager.pool.counts().evicted - before;
        self.records.evicted_blocks(evicted, now_ns);
        let depth = fit::<u32>(looked.found.tokens / manager.align());
        let lease = self.leases.give(request, depth, |_, blocks| blocks)?;
        self.leases.admit(lease);
        self.running[request as usize] = Running {
            reserved_tokens: end,
            depth,
            ..running
        };
        Ok(Some(lease))
    }
}

impl Connector for GroupStore {
    fn step_decided(&mut self, parts: &[Scheduled], now_ns: u64) -> Answer<StepCopies> {
        let in_step = parts.iter().map(|part| {
            Ok(InStep {
                request: self.leases.get(part.lease)?.request,
                computed_tokens: part.computed_tokens,
                confirmed_tokens: part.confirmed_tokens,
            })
        });
        let in_step = in_step.collect::<Answer<Vec<InStep>>>()?;
        let site = Site {
            manager: &mut self.manager,
            records: &mut self.records,
            now_ns,
        };
        if let Some(tier) = &mut self.simple {
            return Ok(tier.step_decided(site, &in_step));
        }
        let tier = self.below.as_mut();
        Ok(tier.map_or_else(StepCopies::default, |tier| {
            tier.step_decided(site, &in_step)
        }))
    }

    fn copies_ended(&mut self) -> Answer<Vec<u32>> {
        if let Some(tier) = &mut self.simple {
            return tier.copies_ended(&mut self.manager);
        }
        match &mut self.below {
            Some(tier) => tier.copies_ended(),
            None => Ok(Vec::new()),
        }
    }

    fn release_blocks(&mut self, lease: LeaseId) -> Answer<()> {
        let ended = self.leases.end(lease)?;
        self.manager.release(ended.request);
        Ok(())
    }

    fn release_late(&mut self, lease: LeaseId) -> Answer<()> {
        let ended = self.leases.end(lease)?;
        self.manager.release_late(ended.request);
        Ok(())
    }

    fn preempted(&mut self, request: u32) {
        self.manager.forget_states(request);
        if let Some(tier) = &mut self.simple {
            tier.preempted(self.manager.groups().len(), request);
        }
        if let Some(tier) = &mut self.below {
            tier.preempted(request);
        }
    }

    fn ended(&mut self, ending: Ending) {
        self.manager.forget_states(ending.request);
        self.manager
            .computed_to(ending.request, ending.processed_tokens);
        self.manager.drop_unread(ending.request);
        if let Some(tier) = &mut self.simple {
            tier.request_ended(&mut self.manager, ending);
        }
        if let Some(tier) = &mut self.below {
            tier.request_ended(ending);
        }
    }
}
