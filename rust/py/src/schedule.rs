//! The log of an engine's own scheduler as Python values.

use kvsim_core::machine::schedule_log::ScheduleLog;

/// Counts in the order of `ScheduleCounts`, steps as `StepLine`, admissions, and requests.
pub type PySchedule = (
    Vec<u64>,
    Vec<(u64, u64, u64, u64, u64)>,
    Vec<(u64, u32, u64)>,
    Vec<(u32, u64, u64, u64, u32)>,
);

/// The logged schedule: counts, steps, admissions and requests.
pub fn schedule_to_py(log: &ScheduleLog) -> PySchedule {
    let c = &log.counts;
    let counts = vec![
        c.scheduled_tokens,
        c.preemptions,
        c.readmissions,
        c.hit_tokens_first,
        c.hit_tokens_readmitted,
        c.end_ns,
        c.max_running,
        c.max_waiting,
        c.zero_token_steps,
    ];
    let steps = log.steps.iter().map(|s| {
        (
            s.start_ns,
            s.prefill_tokens,
            s.decode_tokens,
            s.running,
            s.waiting,
        )
    });
    (
        counts,
        steps.collect(),
        log.admissions.clone(),
        log.requests.clone(),
    )
}
