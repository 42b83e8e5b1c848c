//! The scheduler of an engine, for replicas that have one.

use std::any::Any;

use kvsim_core::batch::BatchConfig;
use kvsim_core::engines::group_store::GroupStore;
use kvsim_core::engines::pool_store::PoolStore;
use kvsim_core::engines::tiered_pool::TieredPool;
use kvsim_core::machine::schedule_log::ScheduleLog;
use kvsim_core::machine::sglang::SglangScheduler;
use kvsim_core::machine::vllm::VllmScheduler;
use kvsim_core::machine::ReplicaConfig;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::engine_rules::{sglang, vllm};
use crate::machine_store::AnyStore;
use crate::serving_rules::ServingRules;

/// The schedulers of real engines.
pub enum Engine {
    Vllm(VllmScheduler<PoolStore>),
    VllmGroups(VllmScheduler<GroupStore>),
    VllmTiers(VllmScheduler<TieredPool>),
    Sglang(SglangScheduler),
}

/// Runs the same expression with either engine's scheduler.
macro_rules! with_engine {
    ($engine:expr, $scheduler:ident => $call:expr) => {
        match $engine {
            Engine::Vllm($scheduler) => $call,
            Engine::VllmGroups($scheduler) => $call,
            Engine::VllmTiers($scheduler) => $call,
            Engine::Sglang($scheduler) => $call,
        }
    };
}

impl Engine {
    /// The scheduler of a replica with these rules; `None` for kvsim's own. ValueError if the replica does not serve
    /// from its own cache.
    pub fn new(
        config: &ReplicaConfig,
        batch: &BatchConfig,
        rules: &ServingRules,
        store: &AnyStore,
    ) -> PyResult<Option<Self>> {
        let engine = match (rules.vllm.0.clone(), rules.sglang.0.clone()) {
            (Some(own), _) => {
                let settings = vllm(config, batch, own);
                match store {
                    AnyStore::Groups(_) => Self::VllmGroups(VllmScheduler::new(settings)),
                    AnyStore::TieredPool(_) => Self::VllmTiers(VllmScheduler::new(settings)),
                    _ => Self::Vllm(VllmScheduler::new(settings)),
                }
            }
            (_, Some(own)) => Self::Sglang(SglangScheduler::new(sglang(config, batch, own))),
            _ => return Ok(None),
        };
        if config.role.hands_over() && !matches!(&engine, Self::Vllm(_)) {
            let expected = "of engines' schedulers, vLLM's over its pool alone hands requests over";
            return Err(PyValueError::new_err(expected));
        }
        match (&engine, store) {
            (Self::Vllm(_), AnyStore::Pool(_))
            | (Self::VllmGroups(_), AnyStore::Groups(_))
            | (Self::VllmTiers(_), AnyStore::TieredPool(_))
            | (Self::Sglang(_), AnyStore::Radix(_)) => Ok(Some(engine)),
            _ => {
                let expected = "an engine's scheduler needs its own cache";
                Err(PyValueError::new_err(expected))
            }
        }
    }

    /// Starts logging the schedule.
    pub fn log_schedule(&mut self) {
        with_engine!(self, scheduler => scheduler.log = Some(ScheduleLog::default()));
    }

    /// The logged schedule, if any.
    pub fn log(&self) -> Option<&ScheduleLog> {
        with_engine!(self, scheduler => scheduler.log.as_ref())
    }
}

/// Downcasts a store to the engine's own cache.
pub fn own_cache<C: Any>(store: &mut dyn Any) -> &mut C {
    store.downcast_mut().expect("its own cache")
}

/// Calls a method of the engine's scheduler at a time, or of kvsim's own if there is none.
macro_rules! scheduled {
    ($engine:expr, $replica:expr, $store:expr, $now_ns:expr, $call:ident($($value:expr),*)) => {{
        let (replica, now_ns) = (&mut *$replica, $now_ns);
        match $engine {
            Some(Engine::Vllm(engine)) => {
                let store = $crate::engine_of::own_cache($store);
                engine.$call(&mut Desk { replica, store, now_ns }, $($value),*)
            }
            Some(Engine::VllmGroups(engine)) => {
                let store = $crate::engine_of::own_cache($store);
                engine.$call(&mut Desk { replica, store, now_ns }, $($value),*)
            }
            Some(Engine::VllmTiers(engine)) => {
                let store = $crate::engine_of::own_cache($store);
                engine.$call(&mut Desk { replica, store, now_ns }, $($value),*)
            }
            Some(Engine::Sglang(engine)) => {
                let store = $crate::engine_of::own_cache($store);
                engine.$call(&mut Desk { replica, store, now_ns }, $($value),*)
            }
            None => replica.$call(&mut Now::alone($store, now_ns), $($value),*),
        }
    }};
}

/// Calls a method of the engine's scheduler that kvsim's own has not, at a time.
macro_rules! with_desk {
    ($engine:expr, $replica:expr, $store:expr, $now_ns:expr, $call:ident($value:expr)) => {{
        let (replica, now_ns) = (&mut *$replica, $now_ns);
        match $engine {
            Some(Engine::Vllm(engine)) => {
                let store = $crate::engine_of::own_cache($store);
                engine.$call(
                    &mut Desk {
                        replica,
                        store,
                        now_ns,
                    },
                    $value,
                )
            }
            _ => Ok(()),
        }
    }};
}

pub(crate) use {scheduled, with_desk, with_engine};
