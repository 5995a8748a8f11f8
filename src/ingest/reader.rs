//! Starts the reader's child process and minds its clock; dropping the reading kills the child.
use std::{collections::VecDeque, fs::File, io, path::PathBuf, process::Stdio, time::Duration};
use svc_formats::{
    FormatError,
    isolated::{Answer, Decoder, Exit, Request, Usage},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, ChildStdout},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

/// The hidden subcommand of the service's binaries that reads one file.
pub const SUBCOMMAND: &str = "read-file";
/// What is kept of the child's standard error.
const STDERR_BYTES: u64 = 8 * 1024;
/// What is taken from the child's pipe at once: as much as a pipe holds.
const PIECE_BYTES: usize = 64 * 1024;
/// A killed child is gone within this, or else its drop sees to it.
const KILL_TIME: Duration = Duration::from_secs(5);

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

    /// Does a step that has one answer.
    ///
    /// # Errors
    /// As [`Reading::next`].
    pub async fn read(&self, input: File, request: &Request) -> Result<(Answer, Usage), FormatError> {
        let mut reading = self.stream(input, request)?;
        let mut answers = VecDeque::new();
        while let Some(answer) = reading.next().await? {
            answers.push_back(answer);
            if answers.len() > 1 {
                return Err(FormatError::Crashed { reason: "it gave more than the one answer".to_owned() });
            }
        }
        let answer = answers.pop_front();
        answer
            .map(|answer| (answer, reading.usage()))
            .ok_or_else(|| FormatError::Crashed { reason: "it gave no answer".to_owned() })
    }

    /// Starts a step on a file. A hostile file ends the child, never this process.
    ///
    /// # Errors
    /// The child does not start.
    pub fn stream(&self, input: File, request: &Request) -> Result<Reading, FormatError> {
        let mut child = tokio::process::Command::new(&self.program)
            .arg(SUBCOMMAND)
            .arg(request.to_argument())
            .env_clear()
            // The allocator's reserve of a gigabyte would count as memory that the file took.
            .env("MIMALLOC_ARENA_RESERVE", "0")
            .envs(request.to_environment())
            .stdin(Stdio::from(input))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| unusable(&format!("{} does not start: {error}", self.program.display())))?;
        let stdout = child.stdout.take().ok_or_else(|| unusable("it has no output"))?;
        let stderr = tokio::spawn(last_words(child.stderr.take()));
        // The child's own limits end it first; the clock is for one that sleeps.
        let deadline = Instant::now() + request.limits.wall_time;
        let decoder = Decoder::new(request);
        Ok(Reading { child, stdout, stderr, decoder, deadline, buffer: vec![0; PIECE_BYTES], end: None })
    }
}

/// A reading under way. Nobody who takes its answers slowly makes it hold more than one pipe full of them: the child waits.
#[derive(Debug)]
pub struct Reading {
    child: Child,
    stdout: ChildStdout,
    stderr: JoinHandle<String>,
    decoder: Decoder,
    deadline: Instant,
    buffer: Vec<u8>,
    end: Option<Result<Usage, FormatError>>,
}

impl Reading {
    /// The next answer; `None` once the reading has ended well. What was answered before an error is of no worth.
    /// May be dropped and called again without losing an answer.
    ///
    /// # Errors
    /// What the reader met, or what its end stands for: a limit by name, a crash, an outside kill. Said again on each call.
    pub async fn next(&mut self) -> Result<Option<Answer>, FormatError> {
        loop {
            if let Some(answer) = self.decoder.next_answer() {
                return Ok(Some(answer));
            }
            if let Some(end) = &self.end {
                return end.clone().map(|_| None);
            }
            let refused = match timeout_at(self.deadline, self.stdout.read(&mut self.buffer)).await {
                // A pipe that breaks is a child that died: its status says how.
                Ok(Ok(0) | Err(_)) => {
                    self.end = Some(self.wait().await);
                    continue;
                }
                Ok(Ok(read)) => self.decoder.feed(&self.buffer[..read]).is_err(),
                Err(_) => true,
            };
            if refused {
                self.end = Some(self.kill().await);
            }
        }
    }

    /// What the reading cost: nothing before its end, and nothing of a child that was killed.
    pub fn usage(&self) -> Usage {
        self.decoder.usage().unwrap_or_default()
    }

    /// The end of a child that has closed its output.
    async fn wait(&mut self) -> Result<Usage, FormatError> {
        match timeout_at(self.deadline, self.child.wait()).await {
            Ok(status) => {
                let status = status.map_err(|error| unusable(&error.to_string()))?;
                let stderr = (&mut self.stderr).await.unwrap_or_default();
                self.decoder.finish(&Exit { stderr, ..Exit::from(status) })
            }
            Err(_) => self.kill().await,
        }
    }

    /// The end of a child that is out of time, or whose answers are not to be believed.
    async fn kill(&mut self) -> Result<Usage, FormatError> {
        let killed = timeout(KILL_TIME, self.child.kill()).await;
        tracing::warn!(killed = killed.is_ok(), "a reader was ended by force");
        self.decoder.finish(&Exit { timed_out: true, ..Exit::default() })
    }
}

fn unusable(reason: &str) -> FormatError {
    FormatError::Io { reason: format!("the reader's process: {reason}") }
}

/// Reads what the child writes to standard error to its end, so that it never waits for us, but keeps only a little.
async fn last_words(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = (&mut pipe).take(STDERR_BYTES).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).into_owned()
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
    Some(svc_formats::isolated::serve(&request, input, io::stdout()))
}
