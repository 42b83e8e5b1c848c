//! Notifications from outside the machines: arrivals of requests, prefetches, and aborts by clients.

use super::event_loop::{Cluster, Machines};
use crate::convert::fit;
use crate::machine::messages::{Operated, Operation, RequestOn, Task};

impl Cluster {
    /// Runs a task from outside on a machine at a time.
    pub fn notify<M: Machines>(
        &mut self,
        machines: &mut M,
        machine: u32,
        task: Task,
        now_ns: u64,
    ) -> Result<(), M::Error> {
        self.now_ns = now_ns;
        self.ask(machines, machine, task).map(|_| ())
    }

    /// Runs a manual cache operation on a machine at a time; returns its result.
    pub fn operate<M: Machines>(
        &mut self,
        machines: &mut M,
        machine: u32,
        operation: Operation,
        now_ns: u64,
    ) -> Result<Operated, M::Error> {
        self.now_ns = now_ns;
        let task = Task::Operate(Box::new(operation));
        Ok(self.ask(machines, machine, task)?.operated)
    }

    /// Aborts a request at a time, on the machine it was sent to or on the machine that decodes it. Does nothing if
    /// the request has finished.
    pub fn abort<M: Machines>(
        &mut self,
        machines: &mut M,
        RequestOn { machine, request }: RequestOn,
        now_ns: u64,
    ) -> Result<(), M::Error> {
        self.now_ns = now_ns;
        if self.ask(machines, machine, Task::Abort(request))?.answer || self.apart {
            return Ok(());
        }
        for decodes in (0..fit::<u32>(self.keys.len())).filter(|&other| other != machine) {
            let done = self.ask(machines, decodes, Task::AbortHandedOver(request))?;
            if done.answer {
                break;
            }
        }
        Ok(())
    }
}
