//! What the child gives up before it reads the first byte of a file. After that, code that a hostile file smuggles into
//! a parser can compute and answer, and nothing else.

use super::syscalls;
use crate::{FormatError, Limits};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use rustix::{
    process::{
        DumpableBehavior, Gid, Resource, Rlimit, Signal, Uid, geteuid, set_dumpable_behavior,
        set_parent_process_death_signal, setrlimit, setsid,
    },
    thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use serde::{Deserialize, Serialize};
use std::{fs, io, os::fd::RawFd};

/// What happens to a reading if the kernel cannot confine the child.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The file is not read.
    #[default]
    Require,
    /// The file is read behind the walls that are available.
    BestEffort,
}

/// How the child is confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub policy: Policy,
    /// The user and the group that the child becomes if root started it. They should own no file and no other process.
    pub user: u32,
}

impl Confinement {
    /// A number that no distribution assigns. `nobody` would not do, because other services run as that user too.
    pub const USER: u32 = 65_533;
}

impl Default for Confinement {
    fn default() -> Self {
        Self { policy: Policy::Require, user: Self::USER }
    }
}

/// The walls that this kernel did not put up, each with the reason.
pub(super) type Lacking = Vec<String>;

/// Closes every descriptor but the three standard ones. The service opens none that a child would inherit, but the
/// service's own parent may have.
pub(super) fn close_inherited() {
    const FIRST: RawFd = 3;
    let listed = fs::read_dir("/proc/self/fd").map(|entries| {
        let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
        numbers.filter(|&number| number >= FIRST).collect::<Vec<_>>()
    });
    // Without /proc, every possible descriptor number is tried.
    let numbers = listed.unwrap_or_else(|_| {
        let limit = rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
        (FIRST..RawFd::try_from(limit).unwrap_or(RawFd::MAX)).collect()
    });
    for number in numbers {
        // The listing's own descriptor is among them and is closed already.
        let _ = nix::unistd::close(number);
    }
}

impl Confinement {
    /// Puts up the walls that the kernel builds around one thread and those it starts later. Call it while there is
    /// only one thread.
    pub(super) fn enter(&self) -> Result<Lacking, FormatError> {
        let mut lacking = Lacking::new();
        // An error means that the process leads a group already, which serves as well.
        let _ = setsid();
        if geteuid().is_root() {
            self.wall(&mut lacking, "a user of its own", become_user(self.user))?;
        }
        // These come after the change of user, which resets both.
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(unlimited)?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(unlimited)?;
        set_no_new_privs(true).map_err(unlimited)?;
        // This is a second wall behind the filter of system calls, so a kernel without it refuses no file.
        if let Err(reason) = forbid_files_and_network() {
            lacking.push(format!("landlock ({reason})"));
        }
        Ok(lacking)
    }

    /// Sets the limits, and the filter of system calls for all threads. Afterwards nothing can be started, opened or
    /// raised.
    pub(super) fn seal(&self, limits: &Limits, mapped: u64, lacking: &mut Lacking) -> Result<(), FormatError> {
        limit(limits, mapped).map_err(unlimited)?;
        self.wall(lacking, "seccomp", syscalls::filter())
    }

    fn wall(&self, lacking: &mut Lacking, name: &str, raised: Result<(), String>) -> Result<(), FormatError> {
        match (raised, self.policy) {
            (Ok(()), _) => Ok(()),
            (Err(reason), Policy::BestEffort) => {
                lacking.push(format!("{name} ({reason})"));
                Ok(())
            }
            (Err(reason), Policy::Require) => Err(FormatError::Io {
                reason: format!("the reader cannot be confined: this system gives it no {name}: {reason}"),
            }),
        }
    }
}

fn unlimited(error: impl Into<io::Error>) -> FormatError {
    FormatError::Io { reason: format!("the reader could not limit itself: {}", error.into()) }
}

/// Becomes the user. Root's supplementary groups go first, because afterwards the right to drop them is gone.
fn become_user(user: u32) -> Result<(), String> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid))
        .map_err(|error| error.to_string())
}

/// The newest walls that are asked for; the kernel puts up those that it has.
const NEWEST: ABI = ABI::V6;

/// Forbids writing below every path, and every TCP port, signal and abstract socket beyond this process. What is written to
/// /dev/null is lost anyway.
pub(super) fn forbid_writes_and_network() -> Result<(), String> {
    let restrict = || {
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_write(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?;
        let null =
            PathFd::new("/dev/null").ok().map(|null| PathBeneath::new(null, AccessFs::WriteFile | AccessFs::Truncate));
        ruleset.create()?.add_rules(null.into_iter().map(Ok::<_, RulesetError>))?.restrict_self()
    };
    enforced(restrict().map(|status| status.ruleset))
}

/// Forbids every path, TCP port, signal and abstract socket beyond this process.
fn forbid_files_and_network() -> Result<(), String> {
    let restrict = || {
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(NEWEST))?
            .handle_access(AccessNet::from_all(NEWEST))?
            .scope(Scope::from_all(NEWEST))?;
        ruleset.create()?.restrict_self()
    };
    enforced(restrict().map(|status| status.ruleset))
}

fn enforced(status: Result<RulesetStatus, RulesetError>) -> Result<(), String> {
    match status {
        Ok(RulesetStatus::NotEnforced) => Err("the kernel has none".to_owned()),
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sets the limits. `mapped` is the number of bytes that the program has mapped already, which are not the file's
/// doing.
fn limit(limits: &Limits, mapped: u64) -> io::Result<()> {
    let set = |resource, value| setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    for nothing in [Resource::Core, Resource::Nofile, Resource::Nproc, Resource::Fsize, Resource::Msgqueue] {
        set(nothing, 0)?;
    }
    set(Resource::As, limits.memory.saturating_add(mapped))?;
    // The soft limit's signal names the cause; the hard limit, a second later, cannot be ignored.
    let seconds = limits.cpu_time.as_secs().max(1);
    setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    Ok(())
}
