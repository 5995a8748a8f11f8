//! The settings of a worker.

use crate::grant::Lane;
use std::time::Duration;

/// How many tasks of each lane may run at a time; as many again may be committing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permits {
    pub cpu: usize,
    pub model: usize,
    pub llm: usize,
    pub io: usize,
}

impl Permits {
    pub const fn of(&self, lane: Lane) -> usize {
        match lane {
            Lane::Cpu => self.cpu,
            Lane::Model => self.model,
            Lane::Llm => self.llm,
            Lane::Io => self.io,
        }
    }
}

#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// The name shown in snapshots and logs.
    pub worker_id: String,
    pub permits: Permits,
    /// The wait after a claim that found nothing.
    pub poll: Duration,
    /// The time between two heartbeats.
    pub heartbeat: Duration,
    /// How long the database keeps a reservation without a heartbeat; at least three heartbeats.
    pub lease: Duration,
    /// The time between two looks for expired claims.
    pub reap: Duration,
    /// The time between two sweeps.
    pub sweep: Duration,
    /// End when nothing is claimable and nothing is held. A task that waits for its next attempt does not keep the
    /// worker alive.
    pub drain_once: bool,
    /// End after this many tasks, not counting those given back or put off.
    pub max_tasks: Option<u64>,
    /// How long it may take to write what is owed once tasks have been stopped.
    pub drain_timeout: Duration,
}

impl WorkerSettings {
    /// The service's documented defaults.
    pub fn new(worker_id: impl Into<String>, permits: Permits) -> Self {
        WorkerSettings {
            worker_id: worker_id.into(),
            permits,
            poll: Duration::from_secs(1),
            heartbeat: Duration::from_secs(10),
            lease: Duration::from_secs(90),
            reap: Duration::from_secs(30),
            sweep: Duration::from_secs(60),
            drain_once: false,
            max_tasks: None,
            drain_timeout: Duration::from_secs(10),
        }
    }

    pub(crate) fn check(&self) -> Result<(), WorkerError> {
        let intervals = [
            ("poll", self.poll),
            ("heartbeat", self.heartbeat),
            ("lease", self.lease),
            ("reap", self.reap),
            ("sweep", self.sweep),
        ];
        if let Some((setting, _)) = intervals.into_iter().find(|(_, interval)| interval.is_zero()) {
            return Err(WorkerError::ZeroInterval { setting });
        }
        if self.heartbeat.checked_mul(3).is_none_or(|least| self.lease < least) {
            return Err(WorkerError::LeaseTooShort { lease: self.lease, heartbeat: self.heartbeat });
        }
        if Lane::ALL.iter().all(|lane| self.permits.of(*lane) == 0) {
            return Err(WorkerError::NoPermits);
        }
        Ok(())
    }
}

/// Why a worker did not start.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    #[error(
        "the lease ({lease:?}) is shorter than three heartbeats ({heartbeat:?} each): raise the lease or lower the heartbeat"
    )]
    LeaseTooShort { lease: Duration, heartbeat: Duration },
    #[error("the {setting} interval is zero: give it a duration above zero")]
    ZeroInterval { setting: &'static str },
    #[error("no lane has a permit: give at least one of cpu, model, llm, io a number above zero")]
    NoPermits,
    #[error("the actor tree did not start: {0}")]
    Spawn(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Permits = Permits { cpu: 1, model: 0, llm: 0, io: 0 };

    #[test]
    fn the_defaults_pass() {
        WorkerSettings::new("w", ONE).check().unwrap();
    }

    #[test]
    fn a_lease_under_three_heartbeats_names_both() {
        let mut settings = WorkerSettings::new("w", ONE);
        settings.lease = Duration::from_millis(29_999);
        let error = settings.check().unwrap_err().to_string();
        assert!(error.contains("29.999s") && error.contains("10s"), "{error}");
        settings.lease = Duration::from_secs(30);
        settings.check().unwrap();
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let mut settings = WorkerSettings::new("w", ONE);
        settings.reap = Duration::ZERO;
        assert!(settings.check().unwrap_err().to_string().contains("reap"));
        let mut settings = WorkerSettings::new("w", ONE);
        settings.heartbeat = Duration::MAX;
        assert!(matches!(settings.check(), Err(WorkerError::LeaseTooShort { .. })));
        let none = Permits { cpu: 0, ..ONE };
        assert!(matches!(WorkerSettings::new("w", none).check(), Err(WorkerError::NoPermits)));
    }
}
