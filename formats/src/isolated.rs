//! Readers run in a child process, because a hostile file can make any engine allocate or spin until it dies, and a process
//! that aborts cannot be caught.
//!
//! The child side is [`serve`], for a hidden subcommand of the service's binary: it puts the limits on itself, reads the
//! file on its standard input and writes one framed answer. The parent side is [`parse_answer`], which makes an answer or a
//! named refusal of what came back. Starting the child, its wall clock and its kill belong to the caller.

use std::{
    fs::File,
    io::{self, BufReader, Write},
    process::{ExitCode, ExitStatus},
    thread,
};

use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use serde::{Deserialize, Serialize};

use crate::{
    Access, Detection, Extraction, Format, FormatError, Limit, Limits, Patterns, Secret, detect, extract, probe,
};

/// The child's environment variable that holds the file's password; an argument would show in every list of processes.
const PASSWORD: &str = "SVC_READER_PASSWORD";

/// What the child is asked to do, passed to it as one argument and, where the file needs a password, one variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub step: Step,
    #[serde(default)]
    pub limits: Limits,
    /// Not part of the argument.
    #[serde(skip)]
    pub password: Option<Secret>,
}

/// One reading of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Detect the format and measure its patterns.
    Probe,
    /// Pull the text out of a file of this format.
    Extract(Format),
}

impl Request {
    /// The request as the child's argument.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("a request is plain data")
    }

    /// What the child's environment must hold, for a parent that clears it.
    pub fn to_environment(&self) -> Option<(&'static str, &str)> {
        self.password.as_ref().map(|password| (PASSWORD, password.reveal()))
    }

    /// The request of an argument and of this process's environment.
    ///
    /// # Errors
    /// Names what in the argument is not a request's.
    pub fn from_argument(argument: &str) -> Result<Self, serde_json::Error> {
        let password = std::env::var(PASSWORD).ok().map(Secret::new);
        Ok(Self { password, ..serde_json::from_str(argument)? })
    }
}

/// What a reading found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The detection stands even where measuring failed.
    Probed {
        detection: Detection,
        patterns: Result<Patterns, FormatError>,
    },
    Extracted(Extraction),
}

/// How the child ended, as its parent saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exit {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The parent killed it because the wall clock ran out.
    pub timed_out: bool,
    /// The end of what it wrote to standard error, where the parent kept it; it tells a full stack from full memory.
    pub stderr: String,
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self { code: status.code(), signal: status.signal(), ..Self::default() }
    }
}

const MAGIC: &[u8; 4] = b"SVF1";
const HEADER: usize = MAGIC.len() + size_of::<u64>();

/// Engines recurse; the main thread's stack is whatever the shell gave it.
const STACK_BYTES: usize = 64 << 20;

/// Answers one request: limits first, then the reading, then the frame on `out`. `input` must be seekable.
pub fn serve(request: &Request, input: File, mut out: impl Write) -> ExitCode {
    let answer = match confine(&request.limits) {
        Ok(()) => read(request.clone(), input),
        // Without its limits the child must not look at the file.
        Err(error) => Err(FormatError::Io { reason: format!("the reader could not limit itself: {error}") }),
    };
    match frame(&answer, &request.limits).and_then(|frame| out.write_all(&frame).and_then(|()| out.flush())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// No more memory and time than allowed, no file or socket beyond those that are open, no core dump.
fn confine(limits: &Limits) -> io::Result<()> {
    let set = |resource, value| setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    set(Resource::Core, 0)?;
    set(Resource::Nofile, 3)?;
    set(Resource::As, limits.memory)?;
    // The soft limit's signal names the cause; the hard one, a second later, cannot be ignored.
    let seconds = limits.cpu_time.as_secs().max(1);
    setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    Ok(())
}

fn read(request: Request, input: File) -> Result<Answer, FormatError> {
    let reader = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || answer(&request, input));
    match reader.map(thread::JoinHandle::join) {
        Ok(Ok(answer)) => answer,
        Ok(Err(panic)) => Err(FormatError::Crashed { reason: panic_text(panic.as_ref()) }),
        Err(error) => Err(FormatError::Io { reason: format!("the reader could not start: {error}") }),
    }
}

/// Does the step in this process; for the child, and for tests that trust the file.
///
/// # Errors
/// What the reader met.
pub fn answer(request: &Request, input: File) -> Result<Answer, FormatError> {
    let access = Access { limits: &request.limits, password: request.password.as_ref() };
    let mut input = BufReader::new(input);
    match request.step {
        Step::Probe => {
            let detection = detect(&mut input)?;
            let patterns = match detection.format {
                Some(format) => probe(format, input, access),
                None => Err(FormatError::UnknownFormat),
            };
            Ok(Answer::Probed { detection, patterns })
        }
        Step::Extract(format) => extract(format, input, access).map(Answer::Extracted),
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("no message"))
}

/// The largest frame a child of these limits writes; a parent reads no more than this and one byte.
pub fn max_frame_bytes(limits: &Limits) -> u64 {
    limits.answer_bytes.saturating_add(HEADER as u64)
}

fn frame(answer: &Result<Answer, FormatError>, limits: &Limits) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, answer)?;
    if (frame.len() - HEADER) as u64 > limits.answer_bytes {
        frame.truncate(HEADER);
        let detail = format_args!("the answer is over {} bytes", limits.answer_bytes);
        serde_json::to_writer(&mut frame, &Err::<Answer, _>(FormatError::over(Limit::AnswerBytes, detail)))?;
    }
    let length = (frame.len() - HEADER) as u64;
    frame[..MAGIC.len()].copy_from_slice(MAGIC);
    frame[MAGIC.len()..HEADER].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Makes an answer of a child's end and what it wrote. `limits` are those of its request.
///
/// # Errors
/// The reader's own refusal, or what its end stands for: a limit by name, a crash, or an I/O error where somebody outside
/// asked it to end.
pub fn parse_answer(exit: &Exit, bytes: &[u8], limits: &Limits) -> Result<Answer, FormatError> {
    if exit.timed_out {
        let detail = format_args!("the reader ran for over {} s", limits.wall_time.as_secs());
        return Err(FormatError::over(Limit::WallTime, detail));
    }
    if let Some(signal) = exit.signal {
        return Err(died(signal, &exit.stderr, limits));
    }
    if bytes.len() as u64 > max_frame_bytes(limits) {
        return Err(FormatError::over(
            Limit::AnswerBytes,
            format_args!("the answer is over {} bytes", limits.answer_bytes),
        ));
    }
    let crashed = |reason: String| FormatError::Crashed { reason };
    let body = body(bytes)
        .ok_or_else(|| crashed(format!("exit code {}, {} bytes of an answer", exit.code.unwrap_or(-1), bytes.len())))?;
    serde_json::from_slice::<Result<Answer, FormatError>>(body)
        .map_err(|error| crashed(format!("its answer does not read: {error}")))?
}

fn body(bytes: &[u8]) -> Option<&[u8]> {
    let (length, body) = bytes.strip_prefix(MAGIC)?.split_first_chunk()?;
    (u64::from_le_bytes(*length) == body.len() as u64).then_some(body)
}

fn died(signal: i32, stderr: &str, limits: &Limits) -> FormatError {
    let memory = || FormatError::over(Limit::Memory, format_args!("the reader needed over {} bytes", limits.memory));
    let stack = || FormatError::over(Limit::Stack, "the reader overflowed its stack");
    match signal {
        signal if signal == Signal::XCPU.as_raw() => {
            let detail = format_args!("the reader computed for over {} s", limits.cpu_time.as_secs());
            FormatError::over(Limit::CpuTime, detail)
        }
        // Rust aborts both when an allocation fails and when a stack is full.
        signal if signal == Signal::ABORT.as_raw() && stderr.contains("overflowed its stack") => stack(),
        signal if signal == Signal::ABORT.as_raw() => memory(),
        signal if signal == Signal::SEGV.as_raw() || signal == Signal::BUS.as_raw() => stack(),
        // Not the parent's kill, or it would have timed out: the kernel ran out of memory.
        signal if signal == Signal::KILL.as_raw() => memory(),
        signal if [Signal::TERM, Signal::INT, Signal::HUP].iter().any(|asked| asked.as_raw() == signal) => {
            FormatError::Io { reason: format!("the reader was asked to end by signal {signal}") }
        }
        signal => FormatError::Crashed { reason: format!("killed by signal {signal}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(exit: Exit, bytes: &[u8]) -> Result<Answer, FormatError> {
        parse_answer(&exit, bytes, &Limits::default())
    }

    fn signal(signal: Signal) -> Exit {
        Exit { signal: Some(signal.as_raw()), ..Exit::default() }
    }

    #[test]
    fn requests_and_answers_cross_the_border() {
        let request = Request {
            step: Step::Extract(Format::Pdf),
            limits: Limits { pages: 7, ..Limits::default() },
            password: None,
        };
        assert_eq!(Request::from_argument(&request.to_argument()).unwrap(), request);
        let closed = Request { password: Some(Secret::new("hunter2")), ..request.clone() };
        assert!(!closed.to_argument().contains("hunter2"), "an argument is seen by everybody");
        assert_eq!(closed.to_environment().map(|(_, value)| value), Some("hunter2"));
        let given = Ok(Answer::Extracted(Extraction { text: "a\nb".into(), ..Extraction::default() }));
        let exit = Exit { code: Some(0), ..Exit::default() };
        assert_eq!(parse(exit.clone(), &frame(&given, &Limits::default()).unwrap()), given);
        let refused = Err(FormatError::Encrypted { format: Format::Pdf });
        assert_eq!(parse(exit, &frame(&refused, &Limits::default()).unwrap()), refused);
    }

    #[test]
    fn each_death_has_its_name() {
        let of = |exit| parse(exit, b"").unwrap_err();
        assert_eq!(of(signal(Signal::ABORT)).limit(), Some(Limit::Memory));
        assert_eq!(of(signal(Signal::KILL)).limit(), Some(Limit::Memory));
        assert_eq!(of(signal(Signal::XCPU)).limit(), Some(Limit::CpuTime));
        assert_eq!(of(Exit { timed_out: true, ..signal(Signal::KILL) }).limit(), Some(Limit::WallTime));
        let stderr = "thread 'x' has overflowed its stack".to_owned();
        assert_eq!(of(Exit { stderr, ..signal(Signal::ABORT) }).limit(), Some(Limit::Stack));
        assert!(!of(signal(Signal::TERM)).is_permanent(), "a shutdown says nothing about the file");
    }

    #[test]
    fn half_an_answer_is_no_answer() {
        let given = Ok(Answer::Extracted(Extraction::default()));
        let whole = frame(&given, &Limits::default()).unwrap();
        for cut in 0..whole.len() {
            assert_eq!(parse(Exit { code: Some(0), ..Exit::default() }, &whole[..cut]).unwrap_err().code(), "crashed");
        }
        let limits = Limits { answer_bytes: 8, ..Limits::default() };
        let frame = frame(&given, &limits).unwrap();
        let error = parse_answer(&Exit { code: Some(0), ..Exit::default() }, &frame, &Limits::default()).unwrap_err();
        assert_eq!(error.limit(), Some(Limit::AnswerBytes));
    }
}
