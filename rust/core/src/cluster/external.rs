//! What machines are told from outside: of a request that comes, of one that is near, and of one that its client gives up.

use super::event_loop::{Cluster, Machines};
use crate::machine::messages::{Operated, Operation, Task};

impl Cluster {
    /// Lets a machine do at a time what it is asked to from outside.
    pub fn notify<M: Machines>(
        &mut self,
        machines: &mut M,
        (machine, task): (u32, Task),
        now_ns: u64,
    ) -> Result<(), M::Error> {
        self.now_ns = now_ns;
        self.ask(machines, machine, task).map(|_| ())
    }

    /// Lets a machine do a manual cache operation at a time; returns what that brought.
    pub fn operate<M: Machines>(
        &mut self,
        machines: &mut M,
        (machine, operation): (u32, Operation),
        now_ns: u64,
    ) -> Result<Operated, M::Error> {
        self.now_ns = now_ns;
        let task = Task::Operate(Box::new(operation));
        Ok(self.ask(machines, machine, task)?.operated)
    }

    /// Lets a request go at a time whose client has given it up, on the machine that it was sent to or on that which
    /// decodes it; nothing happens where it is done.
    pub fn abort<M: Machines>(
        &mut self,
        machines: &mut M,
        (machine, request): (u32, u32),
        now_ns: u64,
    ) -> Result<(), M::Error> {
        self.now_ns = now_ns;
        if self.ask(machines, machine, Task::Abort(request))?.answer || self.apart {
            return Ok(());
        }
        for decodes in (0..self.keys.len() as u32).filter(|&other| other != machine) {
            let done = self.ask(machines, decodes, Task::AbortHandedOver(request))?;
            if done.answer {
                break;
            }
        }
        Ok(())
    }
}
