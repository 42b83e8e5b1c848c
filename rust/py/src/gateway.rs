//! `GatewayRule`: a gateway's rule, applied to what Python or a fleet sees of the machines.

use std::sync::{Mutex, PoisonError};

use kvsim_core::cluster::routing::{Aimd, GatewayRule, Lmetric, Seen, TwoTier, TwoTierAdaptive};
use pyo3::prelude::*;

use crate::argument::{from_tuples, Arg};
use crate::refusal::refused;

/// A prompt to route: its tokens, and the tokens of a block.
pub struct RoutedPrompt {
    prompt_tokens: u64,
    block_tokens: u64,
}

from_tuples! {
    RoutedPrompt { prompt_tokens, block_tokens }
}

/// A rule with its state.
#[pyclass(name = "GatewayRule", frozen)]
pub struct PyGatewayRule {
    rule: Mutex<Box<dyn GatewayRule>>,
}

impl PyGatewayRule {
    fn of(rule: impl GatewayRule + 'static) -> Self {
        Self {
            rule: Mutex::new(Box::new(rule)),
        }
    }

    /// The equally good machines, in ascending order; refuses figures of unequal numbers of machines.
    pub fn equal(&self, seen: &Seen<'_>) -> PyResult<Vec<usize>> {
        if seen.gpu_blocks.len() != seen.active.len() {
            return Err(refused("not a load a machine", "one for each"));
        }
        if seen.block_tokens == 0 {
            return Err(refused("a block without tokens", "one or more"));
        }
        let mut rule = self.rule.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(rule.equal(seen))
    }
}

#[pymethods]
impl PyGatewayRule {
    #[staticmethod]
    fn lmetric(class_blocks: Arg<u64>, window: Arg<usize>) -> Self {
        Self::of(Lmetric::new(class_blocks.0, window.0))
    }

    #[staticmethod]
    fn two_tier(balance_abs: Arg<u64>, balance_rel: f64, cache: f64) -> Self {
        Self::of(TwoTier {
            balance_abs: balance_abs.0,
            balance_rel,
            cache,
        })
    }

    #[staticmethod]
    fn two_tier_adaptive(interval_ns: Arg<u64>, load_scale: f64) -> Self {
        Self::of(TwoTierAdaptive::new(interval_ns.0, load_scale))
    }

    #[staticmethod]
    fn aimd(interval_ns: Arg<u64>, load_scale: f64, sigmoid: bool) -> Self {
        Self::of(Aimd::new(interval_ns.0, load_scale, sigmoid))
    }

    /// The equally good machines for a prompt of (tokens, tokens of a block) and its class.
    fn choose(
        &self,
        prompt: Arg<RoutedPrompt>,
        class: Option<i64>,
        gpu_blocks: Arg<Vec<u32>>,
        active: Arg<Vec<u64>>,
        now_ns: Arg<u64>,
    ) -> PyResult<Vec<usize>> {
        let RoutedPrompt {
            prompt_tokens,
            block_tokens,
        } = prompt.0;
        self.equal(&Seen {
            prompt_tokens,
            block_tokens,
            class,
            gpu_blocks: &gpu_blocks.0,
            active: &active.0,
            now_ns: now_ns.0,
        })
    }
}
