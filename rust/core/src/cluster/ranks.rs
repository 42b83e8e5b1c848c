//! Data-parallel ranks of engines: each has a scheduler, a queue and a KV pool. The ranks of one engine step together
//! (`DPEngineCoreProc.run_busy_loop` of vLLM 0.33.0).

use super::event_loop::{Cluster, Machines};
use super::rank_groups::{Ranks, SharedTime};
use crate::machine::messages::{EventKey, Task};
use crate::machine::Phase;
use crate::step_time::RankStep;

impl Cluster {
    /// Groups every `size` consecutive machines into an engine that steps together; `dummy_ns`: by engine, the
    /// duration of a dummy step; `shared`: by engine, time that its ranks take together.
    pub fn step_together(&mut self, size: u32, dummy_ns: Vec<u64>, shared: Vec<SharedTime>) {
        let boundaries_ns = vec![None; dummy_ns.len()];
        self.ranks = Some(Ranks {
            size,
            dummy_ns,
            shared,
            boundaries_ns,
        });
    }

    /// Ensures that a step is composed for a rank with work: now if no step runs, else at the end of the running
    /// step.
    pub(super) fn rank_changed(&mut self, machine: u32, next: Option<EventKey>) {
        let Some((next, ranks)) = next.zip(self.ranks.as_ref()) else {
            return;
        };
        let engine = machine / ranks.size;
        if ranks.boundaries_ns[engine as usize].is_none() {
            self.step_ends(engine, next.time_ns);
        }
    }

    /// Composes a step of an engine at the end of the previous one: it takes as long as the step of the slowest rank,
    /// whose kernels include the work that all ranks share.
    pub(super) fn step_of_ranks<M: Machines>(
        &mut self,
        machines: &mut M,
        key: EventKey,
    ) -> Result<(), M::Error> {
        let (now_ns, first) = (key.time_ns, key.machine);
        let Some(ranks) = &mut self.ranks else {
            return Ok(());
        };
        let engine = first / ranks.size;
        let of_engine = first..first + ranks.size;
        let dummy_ns = ranks.dummy_ns[engine as usize];
        ranks.boundaries_ns[engine as usize] = None;
        self.due.remove(&key);
        for rank in of_engine.clone() {
            self.ask(machines, rank, Task::EndStep)?;
        }
        let mut alone = Vec::with_capacity(of_engine.len());
        for rank in of_engine.clone() {
            alone.push(self.ask(machines, rank, Task::Compose)?.step);
        }
        if alone.iter().all(Option::is_none) {
            return Ok(());
        }
        let idle = RankStep {
            kernels_ns: dummy_ns,
            step_ns: dummy_ns,
            tokens: 1,
        };
        let steps: Vec<RankStep> = alone.iter().map(|step| step.unwrap_or(idle)).collect();
        let shared = self
            .ranks
            .as_ref()
            .and_then(|r| r.shared.get(engine as usize));
        let shared_ns = shared.map_or(0, |shared| shared.of(&steps));
        let together_ns = steps.iter().map(|step| step.with(shared_ns)).max();
        let together_ns = together_ns.unwrap_or(dummy_ns);
        self.step_ends(engine, now_ns.saturating_add(together_ns));
        for (rank, alone) in of_engine.zip(alone) {
            if alone.is_some() {
                self.ask(machines, rank, Task::StartStep(together_ns))?;
            }
        }
        Ok(())
    }

    fn step_ends(&mut self, engine: u32, at_ns: u64) {
        if let Some(ranks) = &mut self.ranks {
            ranks.boundaries_ns[engine as usize] = Some(at_ns);
            let first = engine * ranks.size;
            self.due.insert(boundary_key(at_ns, first));
        }
    }
}

/// The boundary of an engine, by its first machine.
fn boundary_key(time_ns: u64, machine: u32) -> EventKey {
    EventKey {
        time_ns,
        priority: Phase::Boundary.priority(),
        machine,
        number: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::messages::Done;
    use crate::machine::Replica;

    /// Ranks that record their tasks, with the durations of their next steps.
    #[derive(Default)]
    struct Asked {
        alone: [Option<RankStep>; 4],
        delivered: Vec<(u32, &'static str, u64)>,
    }

    impl Machines for Asked {
        type Error = ();

        fn perform(&mut self, machine: u32, task: Task, now_ns: u64) -> Result<Done, ()> {
            let mut done = Done::default();
            match task {
                Task::EndStep => self.delivered.push((machine, "end", now_ns)),
                Task::Compose => done.step = self.alone[machine as usize],
                Task::StartStep(ns) => self.delivered.push((machine, "start", ns)),
                _ => return Err(()),
            }
            Ok(done)
        }

        fn take_visited(&mut self) -> Vec<(u32, Option<EventKey>)> {
            Vec::new()
        }

        fn with_replica(&mut self, _: u32, _: &mut dyn FnMut(&mut Replica)) -> Result<(), ()> {
            Err(())
        }
    }

    fn step(kernels_ns: u64, tokens: u64) -> RankStep {
        RankStep {
            kernels_ns,
            step_ns: kernels_ns,
            tokens,
        }
    }

    #[test]
    fn shared_work_counts_all_tokens_and_hides_behind_a_launch() {
        let shared = SharedTime {
            padded_ns: vec![0, 20, 21],
            total_ns: vec![0, 1, 2, 3, 40],
        };
        assert_eq!(shared.of(&[step(5, 1), step(9, 2)]), 21);
        assert_eq!(shared.of(&[step(5, 1), step(9, 3)]), 40);
        assert_eq!(shared.of(&[step(5, 8), step(9, 9)]), 40);
        assert_eq!(SharedTime::default().of(&[step(5, 1)]), 0);
        let launched = RankStep {
            step_ns: 25,
            ..step(5, 1)
        };
        assert_eq!(
            [launched.with(0), launched.with(21), step(9, 2).with(21)],
            [25, 26, 30]
        );
    }

    #[test]
    fn two_engines_of_two_ranks_step_each_as_long_as_its_slowest() {
        let mut cluster = Cluster::new(4);
        cluster.step_together(2, vec![7, 7], vec![]);
        let mut machines = Asked {
            alone: [Some(step(5, 3)), Some(step(9, 1)), None, Some(step(4, 1))],
            ..Asked::default()
        };
        for machine in [1, 3] {
            cluster.changed(machine, Some(boundary_key(10, machine)));
        }
        assert_eq!(cluster.next(), Some(boundary_key(10, 0)));
        assert!(cluster.run(&mut machines, 10, 11).is_ok());
        let of_first = [
            (0, "end", 10),
            (1, "end", 10),
            (0, "start", 9),
            (1, "start", 9),
        ];
        let of_second = [(2, "end", 10), (3, "end", 10), (3, "start", 7)];
        assert_eq!(machines.delivered, [&of_first[..], &of_second[..]].concat());
        // An arrival in between waits for the end of its engine's step, at an idle rank too.
        cluster.changed(2, Some(boundary_key(12, 2)));
        assert_eq!(cluster.next(), Some(boundary_key(17, 2)));
        machines.alone = [None; 4];
        assert!(cluster.run(&mut machines, 17, 30).is_ok());
        assert_eq!(cluster.next(), None);
    }
    #[test]
    fn a_rank_without_requests_steps_with_a_token() {
        let shared = SharedTime {
            padded_ns: vec![],
            total_ns: vec![0, 1, 20, 300],
        };
        let mut cluster = Cluster::new(2);
        cluster.step_together(2, vec![7], vec![shared]);
        let mut machines = Asked {
            alone: [Some(step(4, 1)), None, None, None],
            ..Asked::default()
        };
        cluster.changed(0, Some(boundary_key(10, 0)));
        assert!(cluster.run(&mut machines, 10, 11).is_ok());
        assert_eq!(machines.delivered.last(), Some(&(0, "start", 7 + 20)));
    }
}
