//! `Fleet`: all machines at once, for one routing decision.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kvsim_core::cluster::routing::{candidates, least, longest_prefix, prefill_cost, Rule, Turns};
use kvsim_core::keys::BlockKeys;
use kvsim_core::machine::Arrival;
use kvsim_core::store::contract::MachineStore;
use kvsim_core::store::{Board, GPU};
use pyo3::prelude::*;

use crate::group_store::PyGroupStore;
use crate::hicache_store::PyHiCacheStore;
use crate::order::raised;
use crate::own_cache::OwnCache;
use crate::pool_store::PyPoolStore;
use crate::radix_store::PyRadixStore;
use crate::refusal::{answered, refused, Whole};
use crate::serving::PyReplica;
use crate::store::PyStore;
use crate::tiered_pool_store::PyTieredPoolStore;
use crate::token_store::PyTokenStore;

/// The store of a machine: a tree of runs, vLLM's pool (of one group or several, or with tiers of an engine below),
/// one of SGLang's trees, or a count of tokens.
#[derive(FromPyObject)]
pub enum StoreHandle {
    Tree(Py<PyStore>),
    Pool(Py<PyPoolStore>),
    Radix(Py<PyRadixStore>),
    Groups(Py<PyGroupStore>),
    TieredPool(Py<PyTieredPoolStore>),
    HiCache(Py<PyHiCacheStore>),
    Tokens(Py<PyTokenStore>),
}

/// A store, and the replica that runs ahead of the clock on it.
struct Machine {
    store: StoreHandle,
    replica: Py<PyReplica>,
}

/// A request, and how many of its leading blocks may be found.
type Wanted = (u32, u32);

impl Machine {
    /// Leading blocks found; the replica is brought to `now_ns` first.
    fn found(&self, py: Python<'_>, wanted: Wanted, now_ns: u64) -> PyResult<u32> {
        match &self.store {
            StoreHandle::Tree(tree) => {
                let tree = &mut *tree.try_borrow_mut(py)?;
                let found = self.found_in(&mut tree.0, py, wanted, now_ns);
                raised(&tree.1, found)?
            }
            StoreHandle::Pool(s) => self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns),
            StoreHandle::Radix(s) => {
                self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns)
            }
            StoreHandle::Groups(s) => {
                self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns)
            }
            StoreHandle::TieredPool(s) => {
                self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns)
            }
            StoreHandle::Tokens(s) => {
                self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns)
            }
            StoreHandle::HiCache(s) => {
                self.found_in(&mut s.try_borrow_mut(py)?.0, py, wanted, now_ns)
            }
        }
    }

    fn found_in<S: OwnCache>(
        &self,
        store: &mut S,
        py: Python<'_>,
        (request, limit): Wanted,
        now_ns: u64,
    ) -> PyResult<u32> {
        answered(store.known_request(request))?;
        answered(self.replica.try_borrow_mut(py)?.catch_up(store, now_ns))?;
        answered(store.find(request, limit, now_ns)).map(|found| found.0)
    }

    /// Blocks active on the GPU.
    fn active(&self, py: Python<'_>) -> PyResult<u64> {
        let room = match &self.store {
            StoreHandle::Tree(s) => s.try_borrow(py)?.0.room(GPU),
            StoreHandle::Pool(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
            StoreHandle::Radix(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
            StoreHandle::Groups(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
            StoreHandle::TieredPool(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
            StoreHandle::Tokens(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
            StoreHandle::HiCache(s) => MachineStore::room(&s.try_borrow(py)?.0, GPU),
        };
        answered(room).map(|room| room.active)
    }
}

/// The stores of all machines, each with the replica that runs ahead of the clock on it.
#[pyclass(name = "Fleet", frozen)]
pub struct PyFleet {
    machines: Vec<Machine>,
    /// Where machines enter what longest-prefix routing asks of them, once it has asked.
    board: OnceLock<Arc<Board>>,
    /// How often each machine was chosen among equal ones.
    turns: Mutex<Turns>,
}

impl PyFleet {
    /// The board, where every machine has a tree of runs.
    fn board(&self, py: Python<'_>) -> PyResult<Option<(&Arc<Board>, Arc<BlockKeys>)>> {
        let Some(StoreHandle::Tree(first)) = self.machines.first().map(|one| &one.store) else {
            return Ok(None);
        };
        if self.board.get().is_none() {
            let mut trees = Vec::with_capacity(self.machines.len());
            for machine in &self.machines {
                match &machine.store {
                    StoreHandle::Tree(tree) => trees.push((tree, &machine.replica)),
                    _ => return Ok(None),
                }
            }
            let board = Board::new(trees.len());
            for (number, (tree, replica)) in (0..).zip(trees) {
                tree.try_borrow_mut(py)?.0.sit(board.seat(number));
                replica.try_borrow_mut(py)?.sit(board.seat(number));
            }
            let _ = self.board.set(board);
        }
        let keys = first.try_borrow(py)?.0.keys().clone();
        Ok(self.board.get().map(|board| (board, keys)))
    }

    /// Whether machines count tokens: a look at one drops its sessions whose time to live is over, so that all are
    /// looked at, whoever is a candidate.
    pub fn keeps_sessions(&self) -> bool {
        let first = self.machines.first();
        first.is_some_and(|machine| matches!(machine.store, StoreHandle::Tokens(_)))
    }

    /// Of equal machines the one chosen least often so far, of those the first.
    fn take_turns(&self, equal: &[u32]) -> PyResult<u32> {
        self.turn(|turns| turns.take(equal))
    }

    fn turn(&self, take: impl FnOnce(&mut Turns) -> Option<u32>) -> PyResult<u32> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        take(&mut turns).ok_or_else(|| refused("no machine", "one or more"))
    }

    /// The machine that a rule chooses, by what native replicas have at a time.
    pub fn choose(
        &self,
        py: Python<'_>,
        rule: Rule,
        arrival: &Arrival,
        now_ns: u64,
    ) -> PyResult<u32> {
        let prompt_tokens = arrival.prompt_tokens;
        let wanted = (arrival.request, self.matchable_blocks(py, prompt_tokens)?);
        match rule {
            Rule::RoundRobin => self.turn(Turns::in_turn),
            Rule::LeastLoaded => {
                let queued = self.loads(py, |replica| replica.queued_tokens())?;
                self.take_turns(&least(queued))
            }
            Rule::LongestPrefix(threshold) => self.longest_of(py, wanted, now_ns, None, threshold),
            Rule::PrefillCost(block) => {
                let requests = self.loads(py, PyReplica::open_requests)?;
                let mut costs = Vec::with_capacity(requests.len());
                for (machine, requests) in self.machines.iter().zip(requests) {
                    let found = u64::from(machine.found(py, wanted, now_ns)?) * block;
                    costs.push(prefill_cost(prompt_tokens, found, requests));
                }
                self.take_turns(&least(costs))
            }
        }
    }

    /// Leading blocks of a prompt that may be found, by rules that all machines share.
    fn matchable_blocks(&self, py: Python<'_>, prompt_tokens: u64) -> PyResult<u32> {
        match self.machines.first() {
            Some(machine) => {
                let first = machine.replica.try_borrow(py)?;
                Ok(first.replica.matchable_blocks(prompt_tokens))
            }
            None => Err(refused("no machine", "one or more")),
        }
    }

    /// As `longest` of Python.
    fn longest_of(
        &self,
        py: Python<'_>,
        wanted: Wanted,
        now_ns: u64,
        loads: Option<Vec<Whole>>,
        threshold: f64,
    ) -> PyResult<u32> {
        let board = self.board(py)?;
        let loads: Vec<u64> = match (loads, &board) {
            (Some(loads), _) => loads.into_iter().map(Whole::u64).collect(),
            (None, Some((board, _))) => {
                let machines = 0..self.machines.len();
                machines.map(|machine| board.requests(machine)).collect()
            }
            (None, None) => self.loads(py, PyReplica::open_requests)?,
        };
        if loads.len() != self.machines.len() {
            return Err(refused("not a load a machine", "one for each"));
        }
        let mut failed = Ok(());
        let look = |machine: usize| {
            let found = self.machines[machine].found(py, wanted, now_ns);
            found.unwrap_or_else(|error| {
                failed = Err(error);
                0
            })
        };
        let equal = match board {
            Some((board, keys)) => {
                answered(keys.known_request(wanted.0))?;
                let found = board.found(&keys, wanted, candidates(&loads, threshold), look);
                longest_prefix(&loads, threshold, |machine| found[machine])
            }
            None if self.keeps_sessions() => {
                let found: Vec<u32> = (0..self.machines.len()).map(look).collect();
                longest_prefix(&loads, threshold, |machine| found[machine])
            }
            None => longest_prefix(&loads, threshold, look),
        };
        failed?;
        self.take_turns(&equal)
    }

    /// By machine what its replica says of itself.
    fn loads(&self, py: Python<'_>, load: impl Fn(&PyReplica) -> u64) -> PyResult<Vec<u64>> {
        let machines = self.machines.iter();
        machines
            .map(|machine| Ok(load(&*machine.replica.try_borrow(py)?)))
            .collect()
    }
}

#[pymethods]
impl PyFleet {
    #[new]
    fn new(stores: Vec<StoreHandle>, replicas: Vec<Py<PyReplica>>) -> PyResult<Self> {
        if stores.len() != replicas.len() {
            return Err(refused("not a replica a store", "one for each"));
        }
        let turns = Mutex::new(Turns::new(stores.len()));
        let machines = stores.into_iter().zip(replicas);
        let machines = machines.map(|(store, replica)| Machine { store, replica });
        Ok(Self {
            machines: machines.collect(),
            board: OnceLock::new(),
            turns,
        })
    }

    /// By machine: leading blocks found, and blocks active on the GPU; replicas are brought to `now_ns` first.
    fn look(
        &self,
        py: Python<'_>,
        request: Whole,
        limit: Whole,
        now_ns: Whole,
    ) -> PyResult<(Vec<u32>, Vec<u64>)> {
        let wanted = (request.u32(), limit.u32());
        let look = |machine: &Machine| {
            let found = machine.found(py, wanted, now_ns.u64())?;
            Ok((found, machine.active(py)?))
        };
        self.machines.iter().map(look).collect()
    }

    /// The machine that longest-prefix routing chooses; `loads` by machine, none given: requests of the native
    /// replicas. Of equal machines each has its turn.
    fn longest(
        &self,
        py: Python<'_>,
        wanted: (Whole, Whole),
        now_ns: Whole,
        loads: Option<Vec<Whole>>,
        threshold: f64,
    ) -> PyResult<u32> {
        let wanted = (wanted.0.u32(), wanted.1.u32());
        self.longest_of(py, wanted, now_ns.u64(), loads, threshold)
    }
}

/// Adds the classes of this room.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PyFleet>()
}
