//! `Store`: the block store of one machine.

use kvsim_core::store::{Room, Store, TierConfig, Touch};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::keys::PyKeys;
use crate::order::{order, raised, Failure, OrderChoice};

/// The block store of one machine.
#[pyclass(name = "Store")]
pub struct PyStore(pub Store, pub Failure);

/// A room as Python sees it: None refused, else the moves to wait for.
pub fn room_to_py(room: Room) -> Option<Vec<u32>> {
    match room {
        Room::Refused => None,
        Room::Ready => Some(Vec::new()),
        Room::Pending(moves) => Some(moves),
    }
}

/// A transmission as Python sees it: (move, from tier, to tier, blocks, moves that must end first).
type PyOrder = (u32, usize, usize, u64, Vec<u32>);

#[pymethods]
impl PyStore {
    /// `orders`: by tier, None for recency; none given means recency on all. `touch`: what makes blocks recent.
    #[new]
    #[pyo3(signature = (keys, capacities_blocks, write_back, orders=None, touch="release"))]
    fn new(
        keys: &PyKeys,
        capacities_blocks: Vec<Option<u64>>,
        write_back: Vec<bool>,
        orders: Option<Vec<Option<OrderChoice<'_>>>>,
        touch: &str,
    ) -> PyResult<Self> {
        if capacities_blocks.is_empty()
            || capacities_blocks.len() > 3
            || capacities_blocks.len() != write_back.len()
        {
            return Err(PyValueError::new_err(
                "one to three tiers, each with its write policy",
            ));
        }
        let tiers: Vec<TierConfig> = capacities_blocks
            .into_iter()
            .zip(write_back)
            .map(|(capacity_blocks, write_back)| TierConfig {
                capacity_blocks,
                write_back,
            })
            .collect();
        let touch = match touch {
            "release" => Touch::Release,
            "admission" => Touch::Admission,
            _ => return Err(PyValueError::new_err("touch is release or admission")),
        };
        let failure = Failure::default();
        let orders = orders
            .unwrap_or_default()
            .into_iter()
            .map(|choice| choice.map(|choice| order(choice, &failure)).transpose())
            .collect::<PyResult<Vec<_>>>()?;
        let store = Store::new(keys.0.clone(), &tiers)
            .with_touch(touch)
            .with_orders(orders);
        Ok(Self(store, failure))
    }

    fn peek(&self, request: u32, limit: u32) -> (u32, u32) {
        self.0.peek(request, limit)
    }

    fn uses(&self, request: u32, limit: u32) -> Vec<(u32, u32, u64)> {
        self.0.uses(request, limit)
    }

    fn match_prefix(&self, request: u32, limit: u32) -> Vec<(usize, u32, u32, u32)> {
        let parts = self.0.match_prefix(request, limit);
        parts
            .into_iter()
            .map(|p| (p.tier, p.start, p.end, p.by))
            .collect()
    }

    fn acquire(&mut self, request: u32, depth: u32) -> u32 {
        self.0.acquire(request, depth)
    }

    fn reserve(&mut self, lease: u32, blocks: u64, now_ns: u64) -> PyResult<Option<Vec<u32>>> {
        let room = self.0.reserve(&[(lease, blocks)], now_ns);
        raised(&self.1, room_to_py(room))
    }

    fn reserve_many(&mut self, wanted: Vec<(u32, u64)>, now_ns: u64) -> PyResult<Option<Vec<u32>>> {
        let room = self.0.reserve(&wanted, now_ns);
        raised(&self.1, room_to_py(room))
    }

    fn load(&mut self, lease: u32, to: u32, after: Vec<u32>) -> u32 {
        self.0.load(lease, to, &after)
    }

    fn join(&mut self, lease: u32, to: u32) {
        self.0.join(lease, to);
    }

    #[pyo3(signature = (request, part, to_tier, ready, now_ns))]
    fn stage(
        &mut self,
        request: u32,
        part: (u32, u32),
        to_tier: usize,
        ready: Option<u32>,
        now_ns: u64,
    ) -> Option<u32> {
        self.0.stage(request, part, to_tier, ready, now_ns)
    }

    fn protect(&mut self, request: u32, end: u32, tier: usize) -> u32 {
        self.0.protect(request, end, tier)
    }

    fn unprotect(&mut self, tier: usize, hold: u32) {
        self.0.unprotect(tier, hold);
    }

    fn abandon(&mut self, lease: u32) {
        self.0.abandon(lease);
    }

    fn write_through(&mut self, lease: u32, start: u32, end: u32, now_ns: u64) -> Option<u32> {
        self.0.write_through(lease, start, end, now_ns)
    }

    fn write_selected(&mut self, lease: u32, tier: usize, uses: u32, now_ns: u64) -> Option<u32> {
        self.0.write_selected(lease, tier, uses, now_ns)
    }

    fn write_on(&mut self, r#move: u32, now_ns: u64) -> Option<u32> {
        self.0.write_on(r#move, now_ns)
    }

    fn touch(&mut self, request: u32, end: u32) {
        self.0.touch(request, end);
    }

    fn discard(&mut self, request: u32, start: u32, end: u32) {
        self.0.discard(request, start, end);
    }

    fn match_below(&self, request: u32, start: u32, limit: u32) -> Vec<(usize, u32, u32, u32)> {
        let parts = self.0.match_below(request, start, limit);
        parts
            .into_iter()
            .map(|p| (p.tier, p.start, p.end, p.by))
            .collect()
    }

    fn copies(&self, request: u32, limit: u32) -> Vec<(u32, [u32; 3])> {
        self.0.copies(request, limit)
    }

    fn moved_keys(&self, r#move: u32) -> Vec<u64> {
        self.0.moved_keys(r#move)
    }

    fn claim(&mut self, tier: usize, blocks: u64, now_ns: u64) -> Option<(u32, Vec<u32>)> {
        self.0.claim(tier, blocks, now_ns)
    }

    fn give_back(&mut self, claim: u32) {
        self.0.give_back(claim);
    }

    fn place(&mut self, claim: u32, request: u32, part: (u32, u32), source: Option<usize>) -> bool {
        self.0.place(claim, request, part, source)
    }

    fn remove(&mut self, request: u32, part: (u32, u32), tier: usize) -> u32 {
        self.0.remove(request, part, tier)
    }

    fn lend(&mut self, request: u32, end: u32, tier: usize) -> u32 {
        self.0.lend(request, end, tier)
    }

    fn receive(&mut self, request: u32, part: (u32, u32), now_ns: u64) -> Option<u32> {
        self.0.receive(request, part, now_ns)
    }

    fn commit(&mut self, lease: u32, to: u32) {
        self.0.commit(lease, to);
    }

    fn depth(&self, lease: u32) -> u32 {
        self.0.lease(lease).depth
    }

    fn release(&mut self, lease: u32, now_ns: u64) -> PyResult<()> {
        self.0.release(lease, now_ns);
        raised(&self.1, ())
    }

    fn expire(&mut self, now_ns: u64) -> PyResult<()> {
        self.0.expire(now_ns);
        raised(&self.1, ())
    }

    fn take_orders(&mut self) -> Vec<PyOrder> {
        self.0
            .take_orders()
            .into_iter()
            .map(|o| (o.id, o.from, o.to, o.blocks, o.after))
            .collect()
    }

    fn finish_move(&mut self, r#move: u32) -> PyResult<()> {
        self.0.finish_move(r#move);
        raised(&self.1, ())
    }

    fn drop_copy(&mut self, request: u32, start: u32, end: u32, tier: usize) {
        self.0.drop_copy(request, start, end, tier);
    }

    /// (free, active, cached, in flight, evictable) blocks of a tier.
    fn room(&self, tier: usize) -> (u64, u64, u64, u64, u64) {
        let t = self.0.tier(tier);
        (t.free, t.active, t.cached, t.in_flight, t.evictable)
    }

    /// (evictions, overflowed, orphaned) blocks of a tier.
    fn losses(&self, tier: usize) -> (u64, u64, u64) {
        let t = self.0.tier(tier);
        (t.evictions, t.overflowed, t.orphaned)
    }

    /// Blocks of a tier that are on a faster one too.
    fn duplicates(&self, tier: usize) -> u64 {
        self.0.duplicates(tier)
    }

    #[getter]
    fn merged_blocks(&self) -> u64 {
        self.0.merged_blocks
    }

    #[getter]
    fn runs(&self) -> usize {
        self.0.runs()
    }

    #[getter]
    fn digest(&self) -> u64 {
        self.0.records.digest()
    }

    fn note(&mut self, kind: u8, now_ns: u64, subject: u64, value: u64) {
        self.0.records.note(kind, now_ns, subject, value);
    }

    fn log_evictions(&mut self) {
        self.0.records.log_evictions();
    }

    fn take_evictions(&mut self) -> Vec<(u64, usize, u64)> {
        self.0.records.take_evictions()
    }

    fn check(&self) -> PyResult<()> {
        self.0.check().map_err(PyRuntimeError::new_err)
    }
}

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyStore>()
}
