//! The system calls that the child may still make.

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// Calls that only affect this process's memory, time, signals and open descriptors.
const ALLOWED: &[libc::c_long] = &[
    // For the file and the answers.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_close,
    // For memory that holds no code.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    // For the two threads.
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // A stack overflow and a failed allocation are reported by signals to the process itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // For clocks, and the seeds of hash tables.
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
];

/// Leaves all threads of this process only [`ALLOWED`] and a few calls with fitting arguments. Any other call fails
/// with EPERM instead of killing the process, because the C library and the allocator try calls that they can do
/// without.
pub(super) fn filter() -> Result<(), String> {
    apply_filter_all_threads(&program().map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}

fn program() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
    let argument = |index, mask: i32, value: i32| {
        let operator = SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned()));
        SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, u64::from(value.cast_unsigned()))
    };
    // The memory must be the process's own and hold no new code; a mapped file could be written to.
    let no_code = || argument(2, libc::PROT_EXEC, 0);
    let anonymous = argument(3, libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS)?;
    rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![no_code()?, anonymous])?]);
    rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![no_code()?])?]);
    // An abort sends a signal to the thread that aborts.
    let process = rustix::process::getpid().as_raw_nonzero().get();
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![argument(0, -1, process)?])?]);

    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    SeccompFilter::new(rules, refused, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?.try_into()
}
