//! Starts the reader's child process and watches its clock. Dropping the reading kills the child.
use crate::settings::Settings;
use std::{
    fs::File,
    io,
    os::{fd::OwnedFd, unix::net},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};
use svc_formats::{
    FormatError, Limits,
    isolated::{Answer, Confinement, Decoder, Exit, Input, Pages, Request, Step, Usage, answer, become_program, serve},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::UnixStream,
    process::Child,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

/// The hidden subcommand of the service's programs that reads one file.
pub const SUBCOMMAND: &str = "read-file";
/// The hidden subcommand of the service's programs that becomes a program which is not ours, within limits.
pub const PROGRAM_SUBCOMMAND: &str = "run-limited";
/// Where the kernel keeps the program of a process, whatever happens to its file.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// How much of the child's standard error is kept.
const STDERR_BYTES: u64 = 8 * 1024;
/// How much of the child's answers is read at once.
const PIECE_BYTES: usize = 64 * 1024;
/// How long to wait for a killed child; after that, dropping it takes care of it.
const KILL_TIME: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// What a reader may cost, from the settings.
pub fn limits(settings: &Settings) -> Limits {
    let count = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    Limits {
        input_bytes: settings.max_upload_bytes,
        pages: count(settings.parser_pages),
        zip_members: count(settings.parser_zip_members),
        members: count(settings.parser_members),
        member_bytes: settings.parser_member_bytes,
        images: count(settings.parser_images),
        image_bytes: settings.parser_image_bytes,
        zip_ratio: count(settings.parser_zip_ratio),
        unpacked_bytes: settings.parser_unpacked_bytes,
        xml_depth: count(settings.parser_xml_depth),
        cells: settings.parser_cells as u64,
        text_bytes: settings.parser_text_bytes,
        headings: count(settings.parser_headings),
        answer_bytes: settings.parser_answer_bytes,
        memory: settings.parser_memory,
        cpu_time: settings.parser_cpu_time,
        wall_time: settings.parser_wall_time,
    }
}

/// What a reader may cost whose answer a request waits for, because few of these work at a time: of each time that the settings give a minute, or
/// a fifth if that is more.
pub fn limits_of_request(settings: &Settings) -> Limits {
    let within = |time: Duration| time.min(MINUTE).max(time / 5);
    let limits = limits(settings);
    Limits { cpu_time: within(limits.cpu_time), wall_time: within(limits.wall_time), ..limits }
}

/// Reads files in separate processes.
#[derive(Clone, Debug)]
pub struct Reader {
    program: PathBuf,
    confinement: Confinement,
}

/// Why no file can be read here.
#[derive(Debug, thiserror::Error)]
#[error(
    "files cannot be read safely here: {0}; run the service on a kernel with seccomp and, as root, with the right to change \
     its user, or set SVC_PARSER_SANDBOX=best_effort to read files all the same"
)]
pub struct Unconfined(FormatError);

impl Reader {
    /// Makes a reader. `program` must accept [`SUBCOMMAND`].
    pub fn new(program: PathBuf) -> Reader {
        Reader { program, confinement: Confinement::default() }
    }

    /// Confines its children as the settings say.
    #[must_use]
    pub fn confined(self, settings: &Settings) -> Reader {
        let user = u32::try_from(settings.parser_uid).unwrap_or(Confinement::USER);
        Reader { confinement: Confinement { policy: settings.parser_sandbox, user }, ..self }
    }

    /// Starts a child that reads nothing, to learn before the first file how this machine confines children. The log
    /// says what the kernel lacks.
    ///
    /// # Errors
    /// The settings require more than this machine has.
    pub async fn check(&self) -> Result<(), Unconfined> {
        let lacking = async {
            let input = File::open("/dev/null").map_err(FormatError::from)?;
            let mut reading = self.stream(input, &Request::new(Step::Probe, Limits::default()))?;
            while reading.next().await?.is_some() {}
            Ok(reading.decoder.lacking().to_vec())
        };
        let lacking = lacking.await.map_err(Unconfined)?;
        if !lacking.is_empty() {
            let lacking = lacking.join(", ");
            tracing::warn!(lacking, "this system cannot confine the readers of files completely");
        }
        Ok(())
    }

    /// A reader that uses this process's own program, also after another program took its place on the disk.
    pub fn of_this_program() -> Reader {
        Reader::new(PathBuf::from(OWN_PROGRAM))
    }

    /// The program that accepts the subcommands.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Does a step that has one answer.
    ///
    /// # Errors
    /// The same as for [`Reading::next`].
    pub async fn read(&self, input: impl Into<Input>, request: &Request) -> Result<(Answer, Usage), FormatError> {
        self.read_heard(input, request, &|_| ()).await
    }

    /// Does a step as [`Self::read`] does; `pages` hears how far it is.
    ///
    /// # Errors
    /// The same as for [`Reading::next`].
    pub async fn read_heard(
        &self,
        input: impl Into<Input>,
        request: &Request,
        pages: &(dyn Fn(Pages) + Send + Sync),
    ) -> Result<(Answer, Usage), FormatError> {
        let mut reading = self.stream(input, request)?;
        let mut found = None;
        while let Some(answer) = reading.next().await? {
            match answer {
                Answer::Pages(read) => pages(read),
                answer if found.is_none() => found = Some(answer),
                _ => return Err(FormatError::Crashed { reason: "it gave more than the one answer".to_owned() }),
            }
        }
        found
            .map(|answer| (answer, reading.usage()))
            .ok_or_else(|| FormatError::Crashed { reason: "it gave no answer".to_owned() })
    }

    /// Starts a step on a file. A hostile file ends the child, never this process.
    ///
    /// # Errors
    /// The child cannot be started.
    pub fn stream(&self, input: impl Into<Input>, request: &Request) -> Result<Reading, FormatError> {
        let Input { file, shared_strings } = input.into();
        let channel = || {
            let (ours, theirs) = net::UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            // A request is far smaller than a socket's buffer, so this never waits.
            request.send(&ours, self.confinement, shared_strings.as_ref())?;
            Ok::<_, io::Error>((UnixStream::from_std(ours)?, OwnedFd::from(theirs)))
        };
        let (channel, theirs) =
            channel().map_err(|error| unusable(&format!("the child cannot be given its request: {error}")))?;
        let mut child = tokio::process::Command::new(&self.program)
            .arg(SUBCOMMAND)
            .env_clear()
            // The allocator's reserve of a gigabyte would count as memory that the file took.
            .env("MIMALLOC_ARENA_RESERVE", "0")
            .stdin(Stdio::from(file))
            .stdout(Stdio::from(theirs))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| unusable(&format!("{} cannot be started: {error}", self.program.display())))?;
        let stderr = tokio::spawn(last_words(child.stderr.take()));
        // The child's own limits end it first; the clock is for a child that sleeps.
        let deadline = Instant::now() + request.limits.wall_time;
        let decoder = Decoder::new(request);
        Ok(Reading { child, channel, stderr, decoder, deadline, buffer: vec![0; PIECE_BYTES], end: None })
    }
}

/// A reading under way. It applies back-pressure: if its answers are taken slowly, the child blocks once the channel is
/// full.
#[derive(Debug)]
pub struct Reading {
    child: Child,
    channel: UnixStream,
    stderr: JoinHandle<String>,
    decoder: Decoder,
    deadline: Instant,
    buffer: Vec<u8>,
    end: Option<Result<Usage, FormatError>>,
}

impl Reading {
    /// The next answer; `None` once the reading has ended well. After an error, the earlier answers are worthless.
    /// Dropping the future and calling again loses no answer.
    ///
    /// # Errors
    /// What the reader met, or what its end stands for: a limit by name, a crash, a kill from outside. Each further
    /// call repeats it.
    pub async fn next(&mut self) -> Result<Option<Answer>, FormatError> {
        loop {
            if let Some(answer) = self.decoder.next_answer() {
                return Ok(Some(answer));
            }
            if let Some(end) = &self.end {
                return end.clone().map(|_| None);
            }
            let refused = match timeout_at(self.deadline, self.channel.read(&mut self.buffer)).await {
                // If the channel breaks, the child has died; its status says how.
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

    /// What the reading cost; zero before its end, and for a killed child.
    pub fn usage(&self) -> Usage {
        self.decoder.usage().unwrap_or_default()
    }

    /// Waits for the end of a child that has closed its output.
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

    /// Ends a child that is out of time, or whose answers cannot be believed.
    async fn kill(&mut self) -> Result<Usage, FormatError> {
        let killed = timeout(KILL_TIME, self.child.kill()).await;
        tracing::warn!(killed = killed.is_ok(), "killed a reader that ran too long or answered nonsense");
        self.decoder.finish(&Exit { timed_out: true, ..Exit::default() })
    }
}

fn unusable(reason: &str) -> FormatError {
    FormatError::Io { reason: format!("the reader's process: {reason}") }
}

/// Reads everything that the child writes to standard error, so that the child never waits for us, but keeps only a
/// little.
async fn last_words(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = (&mut pipe).take(STDERR_BYTES).read_to_end(&mut kept).await;
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The child's side: returns its exit code if the arguments ask for a child.
pub fn serve_if_asked(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> Option<std::process::ExitCode> {
    match arguments.nth(1)? {
        asked if asked == SUBCOMMAND => Some(serve(answer)),
        asked if asked == PROGRAM_SUBCOMMAND => Some(become_program(arguments)),
        _ => None,
    }
}
