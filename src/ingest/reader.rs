//! Starts the reader's child process and minds its clock; dropping the call kills the child.
use std::{fs::File, io, path::PathBuf, process::Stdio, time::Duration};
use svc_formats::{
    FormatError,
    isolated::{Answer, Exit, Request, max_frame_bytes, parse_answer},
};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The hidden subcommand of the service's binaries that reads one file.
pub const SUBCOMMAND: &str = "read-file";
/// What is kept of the child's standard error.
const STDERR_BYTES: u64 = 8 * 1024;

/// Reads files in a process of their own.
#[derive(Clone, Debug)]
pub struct Reader {
    program: PathBuf,
}

impl Reader {
    /// `program`: a binary that answers to [`SUBCOMMAND`].
    pub fn new(program: PathBuf) -> Reader {
        Reader { program }
    }

    /// This process's own binary.
    pub fn of_this_program() -> io::Result<Reader> {
        Ok(Reader::new(std::env::current_exe()?))
    }

    /// Does one step on a file. A hostile file ends the child, never this process.
    pub async fn read(&self, input: File, request: &Request) -> Result<Answer, FormatError> {
        let mut child = tokio::process::Command::new(&self.program)
            .arg(SUBCOMMAND)
            .arg(request.to_argument())
            .env_clear()
            .envs(request.to_environment())
            .stdin(Stdio::from(input))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| unusable(&format!("{} does not start: {error}", self.program.display())))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let most = max_frame_bytes(&request.limits).saturating_add(1);
        let answer = async { tokio::join!(read_up_to(stdout, most), read_up_to(stderr, STDERR_BYTES), child.wait()) };
        // The child's own limits end it first; the clock is for one that sleeps.
        match tokio::time::timeout(request.limits.wall_time, answer).await {
            Ok((bytes, stderr, status)) => {
                let status = status.map_err(|error| unusable(&error.to_string()))?;
                let exit = Exit { stderr: String::from_utf8_lossy(&stderr).into_owned(), ..Exit::from(status) };
                parse_answer(&exit, &bytes, &request.limits)
            }
            Err(_) => {
                let killed = tokio::time::timeout(Duration::from_secs(5), child.kill()).await;
                tracing::warn!(killed = killed.is_ok(), "a reader ran out of time");
                parse_answer(&Exit { timed_out: true, ..Exit::default() }, &[], &request.limits)
            }
        }
    }
}

fn unusable(reason: &str) -> FormatError {
    FormatError::Io { reason: format!("the reader's process: {reason}") }
}

/// Reads a pipe to its end but keeps only the first `most` bytes, so that the child never waits for us.
async fn read_up_to(pipe: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        // A pipe that breaks is a child that died: its status says how.
        let _ = (&mut pipe).take(most).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    kept
}

/// The child's side: true where the arguments ask for it, with its exit code.
pub fn serve_if_asked(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<std::process::ExitCode> {
    use std::process::ExitCode;
    if arguments.nth(1)? != SUBCOMMAND {
        return None;
    }
    let request = arguments.next().and_then(|argument| Request::from_argument(argument.to_str()?).ok());
    let Some(request) = request else { return Some(ExitCode::from(2)) };
    let input = match std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned() {
        Ok(input) => File::from(input),
        Err(_) => return Some(ExitCode::from(2)),
    };
    Some(svc_formats::isolated::serve(&request, input, io::stdout().lock()))
}
