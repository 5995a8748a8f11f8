//! How long something took.
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Measures from its start.
pub struct Clock {
    wall: Instant,
    processor: Duration,
}

impl Clock {
    pub fn start() -> Self {
        Self { wall: Instant::now(), processor: processor_time() }
    }

    /// The lesser of wall time and processor time. On a busy machine the former includes other programs, and with
    /// threads the latter counts each thread.
    pub fn seconds(&self) -> f64 {
        self.wall.elapsed().min(processor_time().saturating_sub(self.processor)).as_secs_f64()
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0))
}
