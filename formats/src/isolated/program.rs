//! Runs a program that is not ours in place of this process, confined as far as a program can be that must load its
//! libraries and data: it reads files and computes, writes no file, calls nobody over TCP, and takes limited memory and
//! time.

use super::confinement::{close_inherited, forbid_writes_and_network};
use rustix::{
    process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit},
    thread::set_no_new_privs,
};
use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
    time::Duration,
};

/// The exit code that says that the program could not be started.
pub const NOT_STARTED: u8 = 127;

/// What the program may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Address space in bytes.
    pub memory: u64,
    pub cpu_time: Duration,
}

impl ProgramLimits {
    /// The arguments that tell the limits to [`become_program`]; the program and its own arguments follow them.
    pub fn arguments(&self) -> [String; 2] {
        [self.memory.to_string(), self.cpu_time.as_secs().max(1).to_string()]
    }
}

/// Becomes the program that the arguments name, after its limits. Returns only if that fails, and then says why on
/// standard error.
pub fn become_program(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
    let (Some(memory), Some(seconds)) = (number(), number()) else { return ExitCode::from(2) };
    let Some(program) = arguments.next() else { return ExitCode::from(2) };
    close_inherited();
    let reason = match confine(memory, seconds) {
        Ok(()) => Command::new(&program).args(arguments).exec(),
        Err(error) => error,
    };
    eprintln!("{}: {reason}", program.display());
    ExitCode::from(NOT_STARTED)
}

fn confine(memory: u64, seconds: u64) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_no_new_privs(true)?;
    // A kernel without it refuses no program, because the limits below and the clock of the parent hold all the same.
    let _ = forbid_writes_and_network();
    let set = |resource, value| setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    for nothing in [Resource::Core, Resource::Fsize, Resource::Msgqueue] {
        set(nothing, 0)?;
    }
    set(Resource::Cpu, seconds)?;
    Ok(set(Resource::As, memory)?)
}
