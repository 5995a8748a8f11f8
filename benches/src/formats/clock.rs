//! How long something took.
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Counts from its start.
pub struct Clock {
    wall: Instant,
    processor: Duration,
}

impl Clock {
    pub fn start() -> Self {
        Self { wall: Instant::now(), processor: processor_time() }
    }

    /// The lesser of wall and processor time: on a busy machine the first counts its neighbours too, and with threads the
    /// second counts each.
    pub fn seconds(&self) -> f64 {
        self.wall.elapsed().min(processor_time().saturating_sub(self.processor)).as_secs_f64()
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.try_into().unwrap_or(0))
}
