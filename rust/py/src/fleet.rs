//! `Fleet`: all machines together, for one routing decision.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kvsim_core::cluster::routing::{candidates, least, longest_prefix, prefill_cost, Rule, Turns};
use kvsim_core::keys::BlockKeys;
use kvsim_core::machine::Arrival;
use kvsim_core::store::contract::{BlockStore, MachineStore};
use kvsim_core::store::Board;
use pyo3::prelude::*;

use crate::argument::{from_tuples, Arg};
use crate::machine_store::{each_store, AnyStore, PyMachineStore};
use crate::refusal::{answered, refused};
use crate::serving::PyReplica;

/// A store, and the replica that may have run past the clock on it.
struct Machine {
    store: Py<PyMachineStore>,
    replica: Py<PyReplica>,
}

/// The leading blocks of a request that may be found.
#[derive(Clone, Copy)]
struct PrefixQuery {
    request: u32,
    /// Number of the blocks.
    limit: u32,
}

from_tuples! {
    PrefixQuery { request, limit }
}

impl Machine {
    /// Leading blocks found, and ready on the GPU; the replica first runs up to `now_ns`.
    fn found(&self, py: Python<'_>, wanted: PrefixQuery, now_ns: u64) -> PyResult<(u32, u32)> {
        let own = &mut *self.store.try_borrow_mut(py)?;
        let mut replica = self.replica.try_borrow_mut(py)?;
        let PrefixQuery { request, limit } = wanted;
        let found = each_store!(&mut own.store, store => {
            let known = MachineStore::known_request(store, request);
            known
                .and_then(|()| replica.catch_up(store, now_ns))
                .and_then(|()| {
                    BlockStore::run_loops(store, now_ns);
                    BlockStore::find(store, request, limit, now_ns)
                })
        });
        own.answered(found)
    }

    /// Estimated time to load and compute a prompt of so many tokens; the replica first runs up to `now_ns`.
    fn prefill_time_ns(
        &self,
        py: Python<'_>,
        wanted: PrefixQuery,
        tokens: u64,
        now_ns: u64,
    ) -> PyResult<u64> {
        let (found, ready) = self.found(py, wanted, now_ns)?;
        let own = &mut *self.store.try_borrow_mut(py)?;
        let parts = match each_store!(&mut own.store, store => BlockStore::loading(store)) {
            Some(tiers) => tiers.match_prefix(wanted.request, found),
            None => Vec::new(),
        };
        let replica = &self.replica.try_borrow(py)?.replica;
        Ok(replica.prefill_time_ns(parts, ready, tokens, now_ns))
    }

    /// Blocks on the GPU that are private to running requests.
    fn active(&self, py: Python<'_>) -> PyResult<u64> {
        answered(self.store.try_borrow(py)?.active())
    }
}

/// The stores of all machines, each with the replica that may have run past the clock on it.
#[pyclass(name = "Fleet", frozen)]
pub struct PyFleet {
    machines: Vec<Machine>,
    /// The entries of machines for longest-prefix routing, once it has been used.
    board: OnceLock<Arc<Board>>,
    /// Number of times that each machine was chosen among equal ones.
    turns: Mutex<Turns>,
}

impl PyFleet {
    /// The board, if every machine has a tree of runs.
    fn board(&self, py: Python<'_>) -> PyResult<Option<(&Arc<Board>, Arc<BlockKeys>)>> {
        let Some(first) = self.machines.first() else {
            return Ok(None);
        };
        if self.board.get().is_none() {
            for machine in &self.machines {
                if !matches!(machine.store.try_borrow(py)?.store, AnyStore::Tree(_)) {
                    return Ok(None);
                }
            }
            let board = Board::new(self.machines.len());
            for (number, machine) in (0..).zip(&self.machines) {
                let mut own = machine.store.try_borrow_mut(py)?;
                own.tree()
                    .into_iter()
                    .for_each(|tree| tree.add_index_entry(board.index_entry(number)));
                machine
                    .replica
                    .try_borrow_mut(py)?
                    .add_index_entry(board.index_entry(number));
            }
            let _ = self.board.set(board);
        }
        let keys = match &first.store.try_borrow(py)?.store {
            AnyStore::Tree(tree) => tree.keys().clone(),
            _ => return Ok(None),
        };
        Ok(self.board.get().map(|board| (board, keys)))
    }

    /// True if machines count tokens. A look-up on such a machine drops its expired sessions, so all machines are
    /// looked up, candidates or not.
    pub fn keeps_sessions(&self, py: Python<'_>) -> bool {
        let first = self.machines.first();
        first.is_some_and(|machine| matches!(machine.store.borrow(py).store, AnyStore::Tokens(_)))
    }

    /// Of equal machines the least often chosen, then the first.
    fn take_turns(&self, equal: &[u32]) -> PyResult<u32> {
        self.turn(|turns| turns.take(equal))
    }

    fn turn(&self, take: impl FnOnce(&mut Turns) -> Option<u32>) -> PyResult<u32> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        take(&mut turns).ok_or_else(|| refused("no machine", "one or more"))
    }

    /// The machine that a rule chooses from the state of native replicas at a time.
    pub fn choose(
        &self,
        py: Python<'_>,
        rule: Rule,
        arrival: &Arrival,
        now_ns: u64,
    ) -> PyResult<u32> {
        let prompt_tokens = arrival.prompt_tokens;
        let wanted = PrefixQuery {
            request: arrival.request,
            limit: self.matchable_blocks(py, prompt_tokens)?,
        };
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
                    let found = u64::from(machine.found(py, wanted, now_ns)?.0) * block;
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

    /// The machine of longest-prefix routing; see `longest` in `_core.pyi`.
    fn longest_of(
        &self,
        py: Python<'_>,
        wanted: PrefixQuery,
        now_ns: u64,
        loads: Option<Vec<u64>>,
        threshold: f64,
    ) -> PyResult<u32> {
        let board = self.board(py)?;
        let loads: Vec<u64> = match (loads, &board) {
            (Some(loads), _) => loads,
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
            found.map_or_else(
                |error| {
                    failed = Err(error);
                    0
                },
                |found| found.0,
            )
        };
        let equal = match board {
            Some((board, keys)) => {
                answered(keys.known_request(wanted.request))?;
                let found = board.found(
                    &keys,
                    wanted.request,
                    wanted.limit,
                    candidates(&loads, threshold),
                    look,
                );
                longest_prefix(&loads, threshold, |machine| found[machine])
            }
            None if self.keeps_sessions(py) => {
                let found: Vec<u32> = (0..self.machines.len()).map(look).collect();
                longest_prefix(&loads, threshold, |machine| found[machine])
            }
            None => longest_prefix(&loads, threshold, look),
        };
        failed?;
        self.take_turns(&equal)
    }

    /// A load figure of each machine's replica.
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
    fn new(stores: Vec<Py<PyMachineStore>>, replicas: Vec<Py<PyReplica>>) -> PyResult<Self> {
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

    /// By machine: leading blocks found, blocks private to running requests on the GPU, and leading blocks on the GPU;
    /// replicas first run up to `now_ns`.
    fn look(
        &self,
        py: Python<'_>,
        request: Arg<u32>,
        limit: Arg<u32>,
        now_ns: Arg<u64>,
    ) -> PyResult<(Vec<u32>, Vec<u64>, Vec<u32>)> {
        let wanted = PrefixQuery {
            request: request.0,
            limit: limit.0,
        };
        let look = |machine: &Machine| {
            let (found, on_gpu) = machine.found(py, wanted, now_ns.0)?;
            Ok((found, machine.active(py)?, on_gpu))
        };
        self.machines.iter().map(look).collect()
    }

    /// By machine, the estimated time to load and compute a prompt of so many tokens.
    fn prefill_times(
        &self,
        py: Python<'_>,
        wanted: Arg<PrefixQuery>,
        tokens: Arg<u64>,
        now_ns: Arg<u64>,
    ) -> PyResult<Vec<u64>> {
        let time =
            |machine: &Machine| machine.prefill_time_ns(py, wanted.0, tokens.0.max(1), now_ns.0);
        self.machines.iter().map(time).collect()
    }

    /// The machine that longest-prefix routing chooses; `loads` by machine, `None`: requests of the native
    /// replicas. Equal machines take turns.
    fn longest(
        &self,
        py: Python<'_>,
        wanted: Arg<PrefixQuery>,
        now_ns: Arg<u64>,
        loads: Option<Arg<Vec<u64>>>,
        threshold: f64,
    ) -> PyResult<u32> {
        self.longest_of(
            py,
            wanted.0,
            now_ns.0,
            loads.map(|loads| loads.0),
            threshold,
        )
    }
}
