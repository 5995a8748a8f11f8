//! Readers run in a child process, because a hostile file can make any engine allocate or spin until it dies, and a process
//! that aborts cannot be caught.
//!
//! The child side is [`serve`], for a hidden subcommand of the service's binary: it puts the limits on itself, reads the
//! file on its standard input and writes frames to its standard output. The parent side is a [`Decoder`], fed with what comes
//! over the pipe; it yields whole [`Answer`]s, and with the child's [`Exit`] either what the reading cost or a named refusal.
//! Starting the child, its wall clock and its kill belong to the caller.

mod exit;
mod frames;

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    process::ExitCode,
    thread,
    time::Duration,
};

use rustix::{
    process::{Resource, Rlimit, setrlimit},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use crate::{
    Access, Archive, Detection, Extraction, Format, FormatError, Limits, Patterns, Secret, archive, detect, extract,
    probe, refusal,
    xlsx::{self, Cells, Range, RecordsPart, SheetProfile, Workbook},
};

pub use exit::Exit;
pub use frames::Decoder;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Detect the format and measure its patterns.
    Probe,
    /// Pull the text out of a file of this format.
    Extract(Format),
    /// List a workbook's sheets.
    Workbook,
    /// Measure a sheet, by its place among the tabs.
    ProfileSheet { sheet: u32, sketch_columns: bool },
    /// Read a sheet's rows as records: a stream of [`Answer::Records`].
    Records { sheet: u32 },
    /// Read a rectangle of a sheet; the asker has checked its area.
    Cells { sheet: u32, range: Range },
}

impl Step {
    /// The most bytes that one answer takes on its way, whatever the sum of them.
    fn largest_answer(&self, limits: &Limits) -> u64 {
        match self {
            Self::Extract(_) => limits.answer_bytes,
            _ => limits.answer_bytes.min(64 << 20),
        }
    }
}

impl Request {
    /// A request for a file that needs no password.
    pub fn new(step: Step, limits: Limits) -> Self {
        Self { step, limits, password: None }
    }

    /// The request as the child's argument.
    pub fn to_argument(&self) -> String {
        serde_json::to_string(self).expect("a request is plain data")
    }

    /// What the child's environment must hold, for a parent that clears it.
    pub fn to_environment(&self) -> Option<(&'static str, String)> {
        // As JSON, since a variable cannot hold every character that a password can.
        let text = serde_json::to_string(self.password.as_ref()?.reveal()).expect("a password is text");
        Some((PASSWORD, text))
    }

    /// The request of an argument and of this process's environment.
    ///
    /// # Errors
    /// Names what in the two is not a request's.
    pub fn from_argument(argument: &str) -> Result<Self, serde_json::Error> {
        Self::received(argument, std::env::var(PASSWORD).ok().as_deref())
    }

    fn received(argument: &str, variable: Option<&str>) -> Result<Self, serde_json::Error> {
        let password = variable.map(serde_json::from_str::<String>).transpose()?.map(Secret::new);
        Ok(Self { password, ..serde_json::from_str(argument)? })
    }
}

/// What a reading found. A step with many of them emits them one by one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The detection stands even where measuring failed.
    Probed {
        detection: Detection,
        patterns: Result<Patterns, FormatError>,
        /// Why no reader can open it, though its patterns were measured.
        refusal: Option<FormatError>,
        /// What a zip archive says it holds.
        archive: Option<Archive>,
    },
    Extracted(Extraction),
    Workbook(Workbook),
    SheetProfile(SheetProfile),
    Records(RecordsPart),
    Cells(Cells),
}

/// What a reading cost, as the child measured it at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Most memory it had resident at once, in bytes.
    pub peak_bytes: u64,
    /// Processor time in milliseconds.
    pub cpu_ms: u64,
}

/// Takes an answer on its way to the parent; a reader that gets an error from it ends with that error.
pub type Emit<'a> = dyn FnMut(Answer) -> Result<(), FormatError> + 'a;

/// Engines recurse; the main thread's stack is whatever the shell gave it.
const STACK_BYTES: usize = 64 << 20;

/// Serves one request: limits first, then the reading, its answers as frames on `out`. `input` must be seekable.
pub fn serve(request: &Request, input: File, out: impl Write + Send) -> ExitCode {
    // Opened before the limits forbid it. What `getrusage` says of memory would begin at the parent's own.
    let status = File::open("/proc/self/status");
    let mut out = frames::Encoder::new(out, request);
    let result = match confine(&request.limits, status.as_ref().map_or(0, |status| field(status, "VmSize:"))) {
        Ok(()) => read(request, input, &mut out),
        // Without its limits the child must not look at the file.
        Err(error) => Err(FormatError::Io { reason: format!("the reader could not limit itself: {error}") }),
    };
    match out.end(result, usage(status.ok())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// No more memory and time than allowed, no file or socket beyond those that are open, no core dump. `mapped`: bytes that
/// the program has taken already, which are not the file's doing.
fn confine(limits: &Limits, mapped: u64) -> io::Result<()> {
    let set = |resource, value| setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) });
    set(Resource::Core, 0)?;
    set(Resource::Nofile, 3)?;
    set(Resource::As, limits.memory.saturating_add(mapped).saturating_add(STACK_BYTES as u64))?;
    // The soft limit's signal names the cause; the hard one, a second later, cannot be ignored.
    let seconds = limits.cpu_time.as_secs().max(1);
    setrlimit(Resource::Cpu, Rlimit { current: Some(seconds), maximum: Some(seconds + 1) })?;
    Ok(())
}

/// A field of this process's status, in bytes; zero where it cannot be read.
fn field(mut status: &File, name: &str) -> u64 {
    let mut text = String::new();
    let read = status.seek(SeekFrom::Start(0)).and_then(|_| status.read_to_string(&mut text));
    let value = read.ok().and_then(|_| text.lines().find_map(|line| line.strip_prefix(name)));
    let kilobytes = value.and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0).saturating_mul(1024)
}

fn usage(status: Option<File>) -> Usage {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let time = Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0));
    Usage {
        peak_bytes: status.map_or(0, |status| field(&status, "VmHWM:")),
        cpu_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
    }
}

fn read<W: Write + Send>(request: &Request, input: File, out: &mut frames::Encoder<W>) -> Result<(), FormatError> {
    thread::scope(|scope| {
        let reader = thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || answer(request, input, &mut |answer| out.answer(&answer)));
        match reader.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(FormatError::crashed(panic_text(panic.as_ref()))),
            Err(error) => Err(FormatError::Io { reason: format!("the reader could not start: {error}") }),
        }
    })
}

/// Does the step in this process; for the child, and for tests that trust the file.
///
/// # Errors
/// What the reader met, or what `emit` gave.
pub fn answer(request: &Request, input: File, emit: &mut Emit<'_>) -> Result<(), FormatError> {
    let limits = &request.limits;
    let access = Access { limits, password: request.password.as_ref() };
    let mut input = BufReader::new(input);
    match &request.step {
        Step::Probe => {
            let detection = detect(&mut input)?;
            let Some(format) = detection.format else {
                let patterns = Err(FormatError::UnknownFormat);
                return emit(Answer::Probed { detection, patterns, refusal: None, archive: None });
            };
            let patterns = probe(format, &mut input, access);
            let refusal = patterns.as_ref().ok().and_then(|patterns| refusal(format, &mut input, patterns));
            let archive = if format == Format::Zip { archive(&mut input)? } else { None };
            emit(Answer::Probed { detection, patterns, refusal, archive })
        }
        Step::Extract(format) => emit(Answer::Extracted(extract(*format, input, access)?)),
        Step::Workbook => emit(Answer::Workbook(xlsx::workbook(input, limits)?)),
        Step::ProfileSheet { sheet, sketch_columns } => {
            emit(Answer::SheetProfile(xlsx::profile_sheet(input, *sheet, *sketch_columns, limits)?))
        }
        Step::Records { sheet } => xlsx::records(input, *sheet, limits, &mut |part| emit(Answer::Records(part))),
        Step::Cells { sheet, range } => emit(Answer::Cells(xlsx::cells(input, *sheet, *range, limits)?)),
    }
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("no message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_crosses_the_border_and_its_password_by_another_way() {
        let request = Request {
            password: Some(Secret::new("käse\0\n\"")),
            ..Request::new(Step::Extract(Format::Pdf), Limits { pages: 7, ..Limits::default() })
        };
        let argument = request.to_argument();
        assert!(!argument.contains("käse"), "an argument is seen by everybody: {argument}");
        let (_, value) = request.to_environment().unwrap();
        assert!(!value.contains('\0'), "no variable could hold it");
        assert_eq!(Request::received(&argument, Some(&value)).unwrap(), request);
        assert_eq!(Request::received(&argument, None).unwrap().password, None);
        assert!(Request::received("{}", None).is_err());
    }

    #[test]
    fn a_reading_says_what_it_cost() {
        let usage = usage(File::open("/proc/self/status").ok());
        assert!(usage.peak_bytes > 1 << 20, "{usage:?}");
    }
}
