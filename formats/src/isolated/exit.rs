//! What a child's end means.

use crate::{FormatError, Limit, Limits};
use rustix::process::Signal;
use std::process::ExitStatus;

/// How the child ended, as its parent saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The parent killed it because the wall clock ran out.
    pub timed_out: bool,
    /// The end of what it wrote to standard error, if the parent kept it. It distinguishes a full stack from full
    /// memory.
    pub stderr: String,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self { code: status.code(), signal: status.signal(), ..Self::default() }
    }
}

impl Exit {
    /// The refusal that a forced end stands for; `None` if the child ended by itself.
    pub(super) fn refusal(&self, limits: &Limits) -> Option<FormatError> {
        if self.timed_out {
            let detail = format_args!("the reader ran for over {} s", limits.wall_time.as_secs());
            return Some(FormatError::over(Limit::WallTime, detail));
        }
        self.signal.map(|signal| died(signal, &self.stderr, limits))
    }
}

fn died(signal: i32, stderr: &str, limits: &Limits) -> FormatError {
    let memory = || FormatError::over(Limit::Memory, format_args!("the reader needed over {} bytes", limits.memory));
    let stack = || FormatError::over(Limit::Stack, "the reader overflowed its stack");
    match signal {
        signal if signal == Signal::XCPU.as_raw() => {
            let detail = format_args!("the reader computed for over {} s", limits.cpu_time.as_secs());
            FormatError::over(Limit::CpuTime, detail)
        }
        // Rust aborts both when an allocation fails and when the stack overflows.
        signal if signal == Signal::ABORT.as_raw() && stderr.contains("overflowed its stack") => stack(),
        signal if signal == Signal::ABORT.as_raw() => memory(),
        signal if signal == Signal::SEGV.as_raw() || signal == Signal::BUS.as_raw() => stack(),
        // The child's own limits end it by other signals, and the parent's kill has timed out. So this came from a machine that is out of
        // memory, or from a person, and says nothing about the file.
        signal if signal == Signal::KILL.as_raw() => {
            let reason = "the reader was killed from outside; the machine may lack memory";
            FormatError::Io { reason: reason.to_owned() }
        }
        signal if [Signal::TERM, Signal::INT, Signal::HUP].iter().any(|asked| asked.as_raw() == signal) => {
            FormatError::Io { reason: format!("the reader was asked to end by signal {signal}") }
        }
        signal => FormatError::Crashed { reason: format!("killed by signal {signal}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(signal: Signal) -> Exit {
        Exit { signal: Some(signal.as_raw()), ..Exit::default() }
    }

    #[test]
    fn each_death_has_its_name() {
        let of = |exit: Exit| exit.refusal(&Limits::default()).unwrap();
        assert_eq!(of(signal(Signal::ABORT)).limit(), Some(Limit::Memory));
        assert_eq!(of(signal(Signal::XCPU)).limit(), Some(Limit::CpuTime));
        assert_eq!(of(Exit { timed_out: true, ..signal(Signal::KILL) }).limit(), Some(Limit::WallTime));
        let stderr = "thread 'x' has overflowed its stack".to_owned();
        assert_eq!(of(Exit { stderr, ..signal(Signal::ABORT) }).limit(), Some(Limit::Stack));
        for outside in [Signal::TERM, Signal::KILL] {
            assert!(!of(signal(outside)).is_permanent(), "a shutdown or a full machine says nothing about the file");
        }
        assert!(of(signal(Signal::KILL)).to_string().contains("killed from outside"));
        assert_eq!(Exit { code: Some(0), ..Exit::default() }.refusal(&Limits::default()), None);
    }
}
