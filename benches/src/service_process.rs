//! A service in its own process, so that its memory can be measured alone.
use crate::{figure::BoxError, sandbox::Sandbox};
use std::process::Stdio;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// `svc serve`. It must be stopped, because otherwise its database would be left running.
pub struct ServiceProcess {
    child: Child,
    /// Kept open, because the service writes to it when it ends.
    stdout: Lines<BufReader<ChildStdout>>,
}

/// Main memory in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub now: f64,
    pub peak: f64,
}

impl ServiceProcess {
    pub fn start(sandbox: &Sandbox) -> Result<Self, BoxError> {
        Self::start_with(sandbox, &[])
    }

    /// Starts it with further settings.
    pub fn start_with(sandbox: &Sandbox, settings: &[(&str, &str)]) -> Result<Self, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"SVC_") {
                command.env_remove(name);
            }
        }
        command
            .arg("serve")
            .envs(sandbox.variables())
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("the service's output is not ours")?;
        Ok(Self { child, stdout: BufReader::new(stdout).lines() })
    }

    /// Waits until it serves, and returns its address.
    pub async fn base(&mut self) -> Result<String, BoxError> {
        while let Some(line) = self.stdout.next_line().await? {
            if let Some(at) = line.find("http://") {
                let base = line[at..].split_whitespace().next().unwrap_or_default();
                return Ok(base.trim_end_matches('/').to_owned());
            }
        }
        Err(format!("the service did not start: {}", self.child.wait().await?).into())
    }

    /// What the kernel counts for the process.
    pub fn memory(&self) -> Result<Memory, BoxError> {
        let id = self.child.id().ok_or("the service has ended")?;
        Ok(Memory { now: counted(id, "VmRSS")?, peak: counted(id, "VmHWM")? })
    }

    /// Asks it to end in order, and waits for that.
    pub async fn stop(mut self) -> Result<(), BoxError> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
        }
        let status = self.child.wait().await?;
        if status.success() { Ok(()) } else { Err(format!("the service ended with {status}").into()) }
    }
}

/// What the kernel counts for a process under this name, in bytes.
fn counted(id: u32, name: &str) -> Result<f64, BoxError> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("the kernel counts no memory here")?;
    let kibibytes: f64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?;
    Ok(kibibytes * 1024.0)
}

/// The most main memory that a process had, in bytes.
pub fn peak_memory(id: u32) -> Result<f64, BoxError> {
    counted(id, "VmHWM")
}
