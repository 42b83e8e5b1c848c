//! Real engines' cache managers driven step by step.

use kvsim_core::engines::block_pool::BlockPool;
use kvsim_core::engines::radix_pool::RadixPool;
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::engines::{at_least_one, leaf_order, whole_pages, MOST};
use crate::keys::{known_request, PyKeys};

/// vLLM's block pool of one GPU.
#[pyclass(module = "kvcache_sim._core")]
struct VllmPool(BlockPool);

#[pymethods]
impl VllmPool {
    #[new]
    fn new(keys: &PyKeys, capacity_blocks: u32) -> PyResult<Self> {
        at_least_one(u64::from(capacity_blocks), "blocks")?;
        Ok(Self(BlockPool::new(keys.0.clone(), capacity_blocks)))
    }

    #[getter]
    fn free_blocks(&self) -> u32 {
        self.0.free_blocks()
    }

    #[getter]
    fn evicted_blocks(&self) -> u64 {
        self.0.counts().evicted
    }

    fn held_blocks(&self, request: u32) -> PyResult<u32> {
        known_request(request, self.0.requests())?;
        Ok(self.0.held_blocks(request))
    }

    fn peek(&self, request: u32, limit: u32) -> PyResult<u32> {
        known_request(request, self.0.requests())?;
        Ok(self.0.peek(request, limit))
    }

    fn allocate(&mut self, request: u32, hits: u32, blocks: u32) -> PyResult<bool> {
        known_request(request, self.0.requests())?;
        if self.0.held_blocks(request) > 0 || self.0.peek(request, hits) < hits || blocks < hits {
            return Err(PyValueError::new_err(
                "holds blocks already, or hits are not resident",
            ));
        }
        Ok(self.0.allocate(request, hits, blocks))
    }

    fn extend(&mut self, request: u32, blocks: u32) -> PyResult<bool> {
        known_request(request, self.0.requests())?;
        Ok(self.0.extend(request, blocks))
    }

    fn cache(&mut self, request: u32, blocks: u32) -> PyResult<()> {
        known_request(request, self.0.requests())?;
        if blocks > self.0.held_blocks(request) {
            return Err(PyValueError::new_err("more blocks than the request holds"));
        }
        self.0.cache(request, blocks);
        Ok(())
    }

    fn release(&mut self, request: u32) -> PyResult<()> {
        known_request(request, self.0.requests())?;
        self.0.release(request);
        Ok(())
    }

    fn free_queue<'py>(&self, py: Python<'py>) -> Bound<'py, numpy::PyArray1<u64>> {
        self.0.free_queue().into_pyarray(py)
    }
}

/// SGLang's radix tree and token room of one GPU.
#[pyclass(module = "kvcache_sim._core")]
struct SglangPool(RadixPool);

#[pymethods]
impl SglangPool {
    #[new]
    fn new(
        keys: &PyKeys,
        policy: &str,
        page: u32,
        capacity_tokens: u64,
        input_tokens: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<Self> {
        let prompts = input_tokens.as_slice()?.to_vec();
        whole_pages(capacity_tokens, page)?;
        if prompts.len() != keys.0.requests() as usize {
            return Err(PyValueError::new_err("every request needs a length"));
        }
        Ok(Self(RadixPool::new(
            keys.0.clone(),
            leaf_order(policy)?,
            page,
            capacity_tokens,
            prompts,
        )))
    }

    #[getter]
    fn free_tokens(&self) -> u64 {
        self.0.free_tokens()
    }

    #[getter]
    fn evictable_tokens(&self) -> u64 {
        self.0.evictable_tokens()
    }

    #[getter]
    fn evicted_tokens(&self) -> u64 {
        self.0.evicted_tokens()
    }

    fn peek(&self, request: u32, limit: u64) -> PyResult<u64> {
        known_request(request, self.0.requests())?;
        few_tokens(limit)?;
        Ok(self.0.peek(request, limit))
    }

    fn admit(&mut self, request: u32, limit: u64) -> PyResult<u64> {
        known_request(request, self.0.requests())?;
        few_tokens(limit)?;
        if self.0.holds(request) {
            return Err(PyValueError::new_err("the request is admitted already"));
        }
        Ok(self.0.admit(request, limit))
    }

    fn withdraw(&mut self, request: u32) -> PyResult<()> {
        known_request(request, self.0.requests())?;
        self.0.withdraw(request);
        Ok(())
    }

    fn fits(&self, request: u32, total: u64) -> PyResult<bool> {
        self.admitted(request)?;
        few_tokens(total)?;
        Ok(self.0.fits(request, total))
    }

    fn allocate(&mut self, request: u32, tokens: u64) -> PyResult<bool> {
        self.admitted(request)?;
        few_tokens(tokens)?;
        if tokens < self.0.protected_tokens(request) {
            return Err(PyValueError::new_err("fewer tokens than were found"));
        }
        Ok(self.0.allocate(request, tokens))
    }

    fn extend(&mut self, request: u32, tokens: u64) -> PyResult<bool> {
        self.admitted(request)?;
        few_tokens(tokens)?;
        Ok(self.0.extend(request, tokens))
    }

    fn cache(&mut self, request: u32, tokens: u64) -> PyResult<()> {
        self.admitted(request)?;
        let filled = self.0.protected_tokens(request)..=self.0.filled_tokens(request);
        if !filled.contains(&tokens) {
            return Err(PyValueError::new_err(format!(
                "{tokens} tokens to cache, but {} to {} have room",
                filled.start(),
                filled.end()
            )));
        }
        self.0.cache(request, tokens);
        Ok(())
    }

    fn release(&mut self, request: u32) -> PyResult<()> {
        self.admitted(request)?;
        self.0.release(request);
        Ok(())
    }
}

impl SglangPool {
    fn admitted(&self, request: u32) -> PyResult<()> {
        if self.0.holds(request) {
            return Ok(());
        }
        Err(PyValueError::new_err("the request is not admitted"))
    }
}

fn few_tokens(tokens: u64) -> PyResult<()> {
    if tokens < MOST {
        return Ok(());
    }
    Err(PyValueError::new_err("a request has fewer than 2³¹ tokens"))
}

/// Adds the room to the module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<VllmPool>()?;
    m.add_class::<SglangPool>()
}
