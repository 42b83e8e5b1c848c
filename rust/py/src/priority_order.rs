//! A priority function of a block alone as the order of a tier: an index of the evictable blocks.
//!
//! The function is called when a block joins, is used, and loses its last follower; its values are kept. The
//! heap has the current value of every evictable block. A block that is no longer evictable is dropped at the
//! top of the heap, and added again when it becomes evictable.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use kvsim_core::policies::leaf::Facts;
use kvsim_core::policies::order::{EvictionOrder, Named, Standing};
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;

use crate::failure::{locked, Failure};
use crate::priority_value::Value;

/// The heap is cleaned once stale entries outnumber this limit and the current entries.
const MOST_STALE: usize = 64;

/// A block as a priority function sees it, with the attributes of ``BlockView``.
#[pyclass(frozen, name = "PriorityBlock", module = "kvcache_sim._core")]
pub struct PyPriorityBlock {
    #[pyo3(get)]
    id: u32,
    #[pyo3(get)]
    depth: u32,
    #[pyo3(get)]
    parent: i64,
    #[pyo3(get)]
    created: u64,
    hits: AtomicU64,
    last_use: AtomicU64,
    last_use_ns: AtomicI64,
}

#[pymethods]
impl PyPriorityBlock {
    #[getter]
    fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    #[getter]
    fn last_use(&self) -> u64 {
        self.last_use.load(Relaxed)
    }

    #[getter]
    fn last_use_ns(&self) -> i64 {
        self.last_use_ns.load(Relaxed)
    }

    fn __setattr__(&self, name: &str, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        let what = format!("a block view is read-only: {name}");
        Err(PyAttributeError::new_err(what))
    }

    fn __repr__(&self) -> String {
        format!(
            "block {} (depth {}, hits {}, last use {})",
            self.id,
            self.depth,
            self.hits(),
            self.last_use()
        )
    }
}

/// The data of one block, by its number.
#[derive(Default)]
struct Ranked {
    view: Option<Py<PyPriorityBlock>>,
    value: Option<Arc<Value>>,
    parent: Option<u32>,
    depth: u32,
    /// Blocks after it that have joined.
    followers: u32,
    standing: Standing,
    /// Version of the current value; an entry with another stamp is stale.
    stamp: u64,
    /// True if the heap has an entry of the current value.
    listed: bool,
}

/// An entry of the heap: the smallest value is evicted first, then the deepest block, then the lower number.
struct Entry {
    value: Arc<Value>,
    depth: Reverse<u32>,
    number: u32,
    stamp: u64,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        let values = self.value.compare(&other.value);
        values.then((self.depth, self.number).cmp(&(other.depth, other.number)))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// The order of a tier by a function of a block.
pub struct Prioritized {
    /// A ``HostedPriority``: its ``rank`` calls the function.
    host: Py<PyAny>,
    failure: Failure,
    blocks: Vec<Ranked>,
    heap: BinaryHeap<Reverse<Entry>>,
    /// Blocks that have joined.
    joined: usize,
    stamps: u64,
    /// The latest release and its time.
    now: u64,
    now_ns: i64,
}

impl Prioritized {
    /// An order without blocks.
    pub fn new(host: Py<PyAny>, failure: Failure) -> Self {
        Self {
            host,
            failure,
            blocks: Vec::new(),
            heap: BinaryHeap::new(),
            joined: 0,
            stamps: 0,
            now: 0,
            now_ns: 0,
        }
    }

    fn block(&mut self, number: u32) -> &mut Ranked {
        let number = number as usize;
        if self.blocks.len() <= number {
            self.blocks.resize_with(number + 1, Ranked::default);
        }
        &mut self.blocks[number]
    }

    /// Calls the function for a block that has joined, and lists the block again.
    fn rank(&mut self, number: u32) {
        if locked(&self.failure).is_some() {
            return;
        }
        let Some(view) = &self.blocks[number as usize].view else {
            return;
        };
        let answer = Python::attach(|py| {
            let arguments = (view.bind(py), self.now, self.now_ns);
            let returned = self.host.bind(py).call_method1("rank", arguments)?;
            Ok(Value::new(&returned, &self.failure))
        });
        match answer {
            Ok(value) => {
                self.stamps += 1;
                let stamp = self.stamps;
                let block = self.block(number);
                (block.value, block.stamp, block.listed) = (Some(Arc::new(value)), stamp, false);
                self.list(number);
            }
            Err(error) => {
                locked(&self.failure).get_or_insert(error);
            }
        }
    }

    fn list(&mut self, number: u32) {
        let block = &mut self.blocks[number as usize];
        let Some(value) = &block.value else { return };
        if block.listed || !block.standing.may_go() {
            return;
        }
        block.listed = true;
        let entry = Entry {
            value: value.clone(),
            depth: Reverse(block.depth),
            number,
            stamp: block.stamp,
        };
        self.heap.push(Reverse(entry));
        if self.heap.len() > 2 * self.joined + MOST_STALE {
            let blocks = &self.blocks;
            self.heap
                .retain(|Reverse(e)| blocks[e.number as usize].stamp == e.stamp);
        }
        self.check();
    }

    /// Reports an exception of a comparison as the policy's error.
    fn check(&mut self) {
        let raised = locked(&self.failure).take();
        if let Some(error) = raised {
            let worded = Python::attach(|py| {
                let arguments = (error.value(py), self.now_ns);
                self.host
                    .bind(py)
                    .call_method1("worded", arguments)
                    .map(|worded| PyErr::from_value(worded))
                    .unwrap_or_else(|other| other)
            });
            *locked(&self.failure) = Some(worded);
        }
    }
}

impl EvictionOrder for Prioritized {
    fn join(&mut self, block: Named, facts: &Facts) {
        self.now = self.now.max(facts.created);
        self.now_ns = facts.last_access_ns;
        if let Some(parent) = block.parent {
            self.block(parent).followers += 1;
        }
        let view = PyPriorityBlock {
            id: block.number,
            depth: facts.depth,
            parent: block.parent.map_or(-1, i64::from),
            created: facts.created,
            hits: AtomicU64::new(1),
            last_use: AtomicU64::new(facts.created),
            last_use_ns: AtomicI64::new(facts.last_access_ns),
        };
        match Python::attach(|py| Py::new(py, view)) {
            Ok(view) => {
                let (parent, depth) = (block.parent, facts.depth);
                let own = self.block(block.number);
                (own.view, own.parent, own.depth) = (Some(view), parent, depth);
                self.joined += 1;
                self.rank(block.number);
            }
            Err(error) => {
                locked(&self.failure).get_or_insert(error);
            }
        }
    }

    fn used(&mut self, block: u32, facts: &Facts) {
        (self.now, self.now_ns) = (facts.last_access, facts.last_access_ns);
        if let Some(view) = &self.blocks[block as usize].view {
            let view = view.get();
            view.hits.fetch_add(1, Relaxed);
            view.last_use.store(facts.last_access, Relaxed);
            view.last_use_ns.store(facts.last_access_ns, Relaxed);
        }
        self.rank(block);
    }

    fn leave(&mut self, block: u32) {
        self.stamps += 1;
        let stamp = self.stamps;
        let own = self.block(block);
        let (followers, parent) = (own.followers, own.parent);
        *own = Ranked {
            followers,
            stamp,
            ..Ranked::default()
        };
        self.joined -= 1;
        let Some(parent) = parent else { return };
        self.block(parent).followers -= 1;
        if self.block(parent).followers == 0 {
            self.rank(parent);
        }
    }

    fn stands(&mut self, block: u32, standing: Standing) {
        self.block(block).standing = standing;
        self.list(block);
    }

    fn next_victim(&mut self, _wanted: u64, now_ns: u64) -> Option<u32> {
        self.now_ns = now_ns as i64;
        loop {
            if locked(&self.failure).is_some() {
                return None;
            }
            let Reverse(first) = self.heap.peek()?;
            let (number, stamp) = (first.number, first.stamp);
            let block = &mut self.blocks[number as usize];
            if block.stamp == stamp {
                if block.standing.may_go() {
                    return Some(number);
                }
                block.listed = false;
            }
            self.heap.pop();
            self.check();
        }
    }
}
