//! A FIFO channel whose rate falls at known times (the rules of `spec/channels.py`).

use super::job::{Job, Transmission};
use crate::convert::fit;

const WHOLE: u128 = 1_000_000;

/// A span of time in which a channel has a share of its rate, in millionths; 0: nothing is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slowdown {
    /// Its first moment.
    pub from_ns: u64,
    /// The moment after its last.
    pub until_ns: u64,
    /// The remaining share of the rate.
    pub share_ppm: u64,
}

/// Returns the end of work that starts at a time and takes `work_ns` at the full rate. `slowdowns` are in
/// order and without overlap.
///
/// Rounded up once, in the slowdown in which it ends; the work done in each earlier one is rounded down.
fn ends_ns(start_ns: u64, work_ns: u64, slowdowns: &[Slowdown]) -> u64 {
    let (mut now_ns, mut left_ns) = (start_ns, work_ns);
    for slow in slowdowns {
        if left_ns == 0 || slow.until_ns <= now_ns {
            continue;
        }
        if now_ns < slow.from_ns {
            if left_ns <= slow.from_ns - now_ns {
                break;
            }
            left_ns -= slow.from_ns - now_ns;
            now_ns = slow.from_ns;
        }
        let share = u128::from(slow.share_ppm);
        let passes = u128::from(slow.until_ns - now_ns) * share / WHOLE;
        if u128::from(left_ns) <= passes {
            let spans_ns = (u128::from(left_ns) * WHOLE).div_ceil(share);
            return now_ns.saturating_add(u64::try_from(spans_ns).unwrap_or(u64::MAX));
        }
        now_ns = slow.until_ns;
        left_ns -= fit::<u64>(passes);
    }
    now_ns.saturating_add(left_ns)
}

/// Returns true if the rate is lower at some time of a span.
pub(super) fn is_slow(slowdowns: &[Slowdown], start_ns: u64, end_ns: u64) -> bool {
    let slow = |slow: &Slowdown| slow.from_ns < end_ns && start_ns < slow.until_ns;
    slowdowns.iter().any(slow)
}

/// The end of a job that meets a slowdown, and the time that its fastest layer takes.
pub(super) struct SlowedJob {
    pub end_ns: u64,
    pub fastest_layer_ns: u64,
}

/// Sends a job that meets a slowdown, from its earliest start; `feed` brings its layers.
///
/// Its end is exact; its layers are reported as if the slow ones came first, at the pace of the fastest.
pub(super) fn send_slowly(
    slowdowns: &[Slowdown],
    start_ns: u64,
    per_layer_ns: u64,
    job: &Job,
    feed: &Transmission,
) -> SlowedJob {
    let mut slowed = SlowedJob {
        end_ns: start_ns,
        fastest_layer_ns: u64::MAX,
    };
    for later in (0..job.layers).rev() {
        let behind_ns = later.saturating_mul(feed.per_layer_ns);
        let fed_ns = feed.completion_ns.saturating_sub(behind_ns);
        let done_ns = ends_ns(slowed.end_ns.max(fed_ns), per_layer_ns, slowdowns);
        slowed.fastest_layer_ns = slowed.fastest_layer_ns.min(done_ns - slowed.end_ns);
        slowed.end_ns = done_ns;
    }
    slowed
}

#[cfg(test)]
mod tests {
    use super::{ends_ns, Slowdown};

    #[test]
    fn work_takes_longer_by_what_does_not_pass() {
        let half = Slowdown {
            from_ns: 100,
            until_ns: 200,
            share_ppm: 500_000,
        };
        let down = Slowdown {
            from_ns: 300,
            until_ns: 1_000,
            share_ppm: 0,
        };
        let ends = |start, work| ends_ns(start, work, &[half, down]);
        assert_eq!(
            [ends(0, 100), ends(200, 100), ends(1_000, 7)],
            [100, 300, 1_007]
        );
        assert_eq!(
            [ends(50, 75), ends(100, 50), ends(150, 30)],
            [150, 200, 205]
        );
        assert_eq!(
            [ends(250, 51), ends(300, 1), ends(100, 151)],
            [1_001, 1_001, 1_001]
        );
    }
}
