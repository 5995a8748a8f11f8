//! Growing delays for a port that fails. Each streak of failures logs a few warnings.

use std::{fmt::Display, time::Duration};

const LONGEST: Duration = Duration::from_secs(30);

/// A streak of errors in one activity.
pub(crate) struct Streak {
    what: &'static str,
    first: Duration,
    errors: u32,
}

impl Streak {
    pub fn new(what: &'static str, first: Duration) -> Self {
        Streak { what, first, errors: 0 }
    }

    /// Counts an error and returns how long to wait: the delay doubles, up to 30 s. The first error of a streak is logged as a
    /// warning, and then every tenth, so that whoever looks at the end of a log sees what does not work.
    pub fn error(&mut self, error: &dyn Display) -> Duration {
        let doubled = 2u32.saturating_pow(self.errors.min(31));
        let delay = self.first.saturating_mul(doubled).min(LONGEST);
        if self.errors == 0 {
            tracing::warn!(error = %error, "{} failed; trying again after growing delays", self.what);
        } else if self.errors.is_multiple_of(10) {
            tracing::warn!(error = %error, errors = self.errors, "{} still fails", self.what);
        } else {
            tracing::debug!(error = %error, delay_ms = delay.as_millis() as u64, "{} failed again", self.what);
        }
        self.errors = self.errors.saturating_add(1);
        delay
    }

    pub fn success(&mut self) {
        if self.errors > 0 {
            tracing::info!(errors = self.errors, "{} works again", self.what);
            self.errors = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_doubles_to_its_cap_and_starts_over_after_a_success() {
        let mut streak = Streak::new("test", Duration::from_secs(1));
        let delays: Vec<u64> = (0..70).map(|_| streak.error(&"down").as_secs()).collect();
        assert_eq!(delays[..7], [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(delays[69], 30);
        streak.success();
        assert_eq!(streak.error(&"down").as_secs(), 1);
    }
}
