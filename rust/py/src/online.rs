//! Replays of a trace that is read row by row.

use kvsim_core::policies::{Bounds, Kind};
use kvsim_core::replay::blocks::Blocks;
use kvsim_core::replay::growing::{Growing, TierRuns};
use kvsim_core::replay::leaf_tier::Leaves;
use kvsim_core::replay::objects::{Discipline, Objects};
use kvsim_core::replay::online::Online;
use kvsim_core::replay::prompt_error::PromptError;
use kvsim_core::replay::recency::Recency;
use kvsim_core::replay::runs::Runs;
use kvsim_core::replay::stack::Cut;
use kvsim_core::replay::RowReplay;
use pyo3::prelude::*;

use crate::policy_settings::{native_policy, ReplayPolicySettings};
use crate::replay_settings::{capacity_of, plain_discipline, refused, touch_end};
use crate::trace_rows::TraceRows;

/// Hits, hits that count, their tokens, evictions, expired and resident blocks, digest.
type Answer = (u64, u64, u64, u64, u64, u64, String);

/// Tiers with any policy that needs no future, fed with the same rows.
#[pyclass(module = "kvcache_sim._core")]
pub struct OnlineReplays {
    online: Online,
    per_id: u32,
}

#[pymethods]
impl OnlineReplays {
    #[new]
    fn new(
        block_size: u64,
        blocks_per_id: u32,
        keep_partial: bool,
        output_less: Option<u64>,
        all_count: bool,
    ) -> Self {
        let cut = Cut {
            block_size,
            keep_partial,
            output_less,
        };
        Self {
            online: Online::new(cut, u64::from(blocks_per_id), all_count),
            per_id: blocks_per_id,
        }
    }

    /// Add a prefix-aware tier; one of lru without overlap is touched from this end.
    fn add_prefix(
        &mut self,
        policy: &str,
        capacity: u64,
        touch_from: &str,
        settings: &ReplayPolicySettings,
        window: u32,
    ) -> PyResult<()> {
        let (row, end) = (native_policy(policy)?, touch_end(touch_from)?);
        let capacity = capacity_of(capacity)?;
        let runs = || TierRuns::Owned(Runs::default());
        let tier: Box<dyn RowReplay> = match row.kind {
            _ if row.name == "lru" && window == 0 => Box::new(Growing::new(
                Recency::new(runs(), capacity, end),
                self.per_id,
            )),
            Kind::Ranked(make) => {
                let policy = make(&settings.inner);
                let leaves = Leaves::new(runs(), capacity, policy, window);
                Box::new(Growing::new(leaves, self.per_id))
            }
            Kind::Queue(_) => {
                let how = Discipline::LeafFirst;
                return self.add_blocks(policy, capacity, how, settings, window);
            }
        };
        self.online.add(tier);
        Ok(())
    }

    /// Add a plain cache of blocks, touched from tail or root, or as a queue.
    fn add_plain(
        &mut self,
        policy: &str,
        capacity: u64,
        discipline: &str,
        settings: &ReplayPolicySettings,
        window: u32,
    ) -> PyResult<()> {
        let (how, capacity) = (plain_discipline(discipline)?, capacity_of(capacity)?);
        if native_policy(policy)?.name != "lru" || window > 0 {
            return self.add_blocks(policy, capacity, how, settings, window);
        }
        let tier = Recency::plain(TierRuns::Owned(Runs::default()), capacity, how);
        self.online.add(Box::new(Growing::new(tier, self.per_id)));
        Ok(())
    }

    /// Take every row; false if one cannot be replayed alone.
    fn feed(&mut self, py: Python<'_>, rows: &mut TraceRows) -> PyResult<bool> {
        let mut problem: Option<PromptError> = None;
        let online = &mut self.online;
        let fed = rows.each(py, |columns, _| {
            if problem.is_none() {
                problem = online.rows(columns).err();
            }
        })?;
        problem.map_or(Ok(fed), |error| Err(refused(error)))
    }

    /// Requests, prompt tokens and references to blocks.
    #[getter]
    fn totals(&self) -> (u64, u64, u64) {
        let online = &self.online;
        (online.requests, online.input_tokens, online.references)
    }

    /// The figures of each tier.
    #[getter]
    fn answers(&self) -> Vec<Answer> {
        let figures = self.online.answers().into_iter();
        let answer = figures.map(|(f, t, digest)| {
            let (evictions, expired) = (t.evictions, t.expired);
            (
                f.hits,
                f.hit_blocks,
                f.hit_tokens,
                evictions,
                expired,
                t.resident,
                digest,
            )
        });
        answer.collect()
    }
}

impl OnlineReplays {
    fn add_blocks(
        &mut self,
        policy: &str,
        capacity: u64,
        how: Discipline,
        settings: &ReplayPolicySettings,
        window: u32,
    ) -> PyResult<()> {
        let bounds = Bounds {
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            universe: 0,
        };
        let policy = native_policy(policy)?.on_blocks(&settings.inner, bounds);
        let blocks = Blocks::new(self.per_id, window);
        let tier = Objects::new(blocks, capacity, policy, how);
        self.online.add(Box::new(tier));
        Ok(())
    }
}
