//! Native routing: the machine of each arriving request, and the machine that decodes its answer.

use std::collections::HashMap;

use kvsim_core::cluster::intake::{Coming, Holds, Intake};
use kvsim_core::cluster::routing::Rule;
use kvsim_core::cluster::{Chosen, Question};
use kvsim_core::digest::Record;
use kvsim_core::machine::messages::{RequestOn, Route, SlotOn};
use kvsim_core::machine::Arrival;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::argument::tuple_structs;
use crate::channel::{lane, PyLane};
use crate::digest::PyDigest;
use crate::fleet::PyFleet;
use crate::machines::Replicas;
use crate::refusal::refused;

/// Integers per arriving request, as `Cluster.feed` takes them.
const COMING: usize = 10;

tuple_structs! {
    /// A rule of the core over a fleet.
    pub struct ChoiceArg {
        rule: String,
        /// The rule's parameter.
        number: f64,
        fleet: Py<PyFleet>,
    }

    /// Tokens of a prompt and of a whole request that fit a machine.
    pub struct HoldsArg {
        prompt_tokens: u64,
        kv_tokens: u64,
    }
}

/// A rule of the core over some machines, in their order.
pub struct Choice {
    rule: Rule,
    fleet: Py<PyFleet>,
    machines: Vec<u32>,
}

impl Choice {
    /// The rule of a name over these machines.
    pub fn new(given: ChoiceArg, machines: Vec<u32>) -> PyResult<Self> {
        let rule = Rule::of(&given.rule, given.number);
        let rule = rule.ok_or_else(|| refused("no such rule", "one that the core has"))?;
        Ok(Self {
            rule,
            fleet: given.fleet,
            machines,
        })
    }

    /// The index of the chosen machine.
    fn slot(&self, py: Python<'_>, arrival: &Arrival, now_ns: u64) -> PyResult<usize> {
        let fleet = self.fleet.get();
        match self.machines.as_slice() {
            [_] if !fleet.keeps_sessions(py) => Ok(0),
            _ => Ok(fleet.choose(py, self.rule, arrival, now_ns)? as usize),
        }
    }
}

/// Requests that will arrive, and the rule that routes them.
pub struct FrontDoor {
    pub intake: Intake,
    choice: Choice,
    /// By machine, the digest that records arrivals.
    digests: Vec<Py<PyDigest>>,
    /// Requests that do not fit their machine.
    pub rejected: Vec<RequestOn>,
}

impl FrontDoor {
    /// `holds`: by machine, tokens of a prompt and of a whole request that fit.
    pub fn new(choice: Choice, digests: Vec<Py<PyDigest>>, holds: Vec<HoldsArg>) -> Self {
        let holds = holds.into_iter().map(|holds| Holds {
            prompt_tokens: holds.prompt_tokens,
            kv_tokens: holds.kv_tokens,
        });
        Self {
            intake: Intake::new(holds.collect()),
            choice,
            digests,
            rejected: Vec::new(),
        }
    }

    /// Adds requests, [`COMING`] integers each.
    pub fn feed(&mut self, packed: &[u8]) -> PyResult<()> {
        if packed.len() % (COMING * 8) != 0 {
            let expected = format!("{COMING} integers a request");
            return Err(PyValueError::new_err(expected));
        }
        let rows = packed.chunks_exact(COMING * 8).map(|row| {
            let number = |at: usize| {
                let bytes = row[at * 8..][..8].try_into();
                i64::from_ne_bytes(bytes.unwrap_or_default())
            };
            let arrival = Arrival {
                request: number(0) as u32,
                prompt_tokens: number(2) as u64,
                output_tokens: number(3) as u64,
                session: number(4),
                turn: number(5),
                is_conversational_turn: number(6) != 0,
                expected_prefill_tokens: 0,
                priority: number(7),
                history_tokens: u64::try_from(number(9)).ok(),
            };
            Coming {
                arrival,
                at_ns: number(1) as u64,
                abort_after_ns: u64::try_from(number(8)).ok(),
            }
        });
        self.intake.feed(rows);
        Ok(())
    }

    /// Routes the next request; returns its machine and its slot there if it is in the queue at once.
    pub fn come(
        &mut self,
        replicas: &Replicas<'_, '_>,
        coming: Coming,
    ) -> PyResult<Option<SlotOn>> {
        let Coming { arrival, at_ns, .. } = coming;
        let py = replicas.py;
        let slot = self.choice.slot(py, &arrival, at_ns)?;
        let machine = self.choice.machines[slot];
        let (request, prompt) = (u64::from(arrival.request), arrival.prompt_tokens);
        let mut digest = self.digests[machine as usize].try_borrow_mut(py)?;
        digest
            .0
            .record(Record::Arrive as u8, at_ns, request, prompt);
        if !self.intake.fits(machine, &arrival) {
            self.rejected.push(RequestOn {
                machine,
                request: arrival.request,
            });
            return Ok(None);
        }
        let mut replica = replicas.of(machine).try_borrow_mut(py)?;
        let slot = replica.replica.arrive(arrival, at_ns);
        let reaches_ns = replica.replica.reaches_ns(slot);
        self.intake.sent(&coming, machine);
        let on = SlotOn { machine, slot };
        if reaches_ns > at_ns {
            self.intake.travels(on, reaches_ns);
            return Ok(None);
        }
        Ok(Some(on))
    }
}

/// The rule that chooses decode machines.
pub struct DecodeDoor {
    choice: Choice,
    /// By candidate, tokens of a request that fit.
    holds: Vec<u64>,
    /// Names the channels from one machine to another.
    pub between: Py<PyAny>,
    routes: HashMap<(u32, u32), Route>,
}

impl DecodeDoor {
    /// `holds`: by candidate, tokens of a request that fit.
    pub fn new(choice: Choice, holds: Vec<u64>, between: Py<PyAny>) -> Self {
        Self {
            choice,
            holds,
            between,
            routes: HashMap::new(),
        }
    }

    /// The decode machine of a request. A machine too small for it passes it on to the next that is not.
    pub fn answer(&mut self, py: Python<'_>, question: &Question, now_ns: u64) -> PyResult<Chosen> {
        let arrival = question.arrival;
        // The choice takes effect after all step boundaries of this instant.
        let slot = self.choice.slot(py, &arrival, now_ns + 1)?;
        let tokens = arrival.prompt_tokens + arrival.output_tokens.max(1) - 1;
        let from_there = (slot..self.holds.len()).chain(0..slot);
        let slot = from_there.into_iter().find(|&at| tokens <= self.holds[at]);
        let slot = slot.ok_or_else(|| refused("no machine can decode a request", "one"))?;
        let (source, machine) = (question.source.machine, self.choice.machines[slot]);
        if !self.routes.contains_key(&(source, machine)) {
            let named = self.between.bind(py).call1((source, machine))?;
            let hops: Vec<PyLane> = named.extract()?;
            self.routes.insert((source, machine), route_of(hops)?);
        }
        Ok(Chosen {
            machine,
            route: self.routes[&(source, machine)].clone(),
            expected_tokens: 0,
        })
    }
}

/// The channel between two machines, or down, between and up if both machines' memory is crossed; each hop is a set of
/// parallel channels.
pub fn route_of(hops: Vec<PyLane>) -> PyResult<Route> {
    let mut lanes = hops.into_iter().map(lane);
    let hops = (lanes.next(), lanes.next(), lanes.next(), lanes.next());
    let route = match hops {
        (Some(wire), None, None, None) => (wire?, None),
        (Some(down), Some(wire), Some(up), None) => (wire?, Some((down?, up?))),
        _ => {
            let expected = "one channel, or down, between, and up";
            return Err(PyValueError::new_err(expected));
        }
    };
    let (wire, memory) = route;
    Ok(Route {
        wire: wire.assigned().clone(),
        memory,
    })
}
