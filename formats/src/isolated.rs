//! Runs readers in a child process, because a hostile file can make any engine allocate or loop until it dies, and a
//! process that aborts cannot be caught.
//!
//! The child side is [`serve`], for a hidden subcommand of the service's binary. It reads the request on its standard
//! output, which is a socket, confines itself, reads the file on its standard input and writes frames to the socket.
//! The parent side is [`Request`] and a [`Decoder`], which is fed with what comes over the socket. It
//! yields whole [`Answer`]s, and with the child's [`Exit`] either the cost of the reading or a named refusal. Starting
//! the child, timing it and killing it are up to the caller.

mod confinement;
mod exit;
mod frames;
mod message;
mod program;
mod syscalls;

use crate::{
    Access, Archive, DetectedBy, Detection, Extraction, Format, FormatError, ImagePart, Limits, MemberPart, PageSource,
    Patterns, PictureSize, Raster, Secret, TemplateRead, WebPage, archive, detect, extract, images, members, pdf,
    probe, refusal, template, web_page,
    xlsx::{self, Cells, Range, RecordsPart, SheetProfile, Workbook},
};
pub use confinement::{Confinement, Policy};
pub use exit::Exit;
pub use frames::Decoder;
pub use program::{NOT_STARTED, ProgramLimits, become_program};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    os::fd::AsFd,
    process::ExitCode,
    thread,
    time::Duration,
};

/// What the child is asked to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub step: Step,
    #[serde(default)]
    pub limits: Limits,
    /// Serialised only for the child.
    #[serde(skip)]
    pub password: Option<Secret>,
}

/// The input of a reading: a seekable file whose position is the reading's own, and a workbook's shared strings if an
/// earlier reading wrote them.
pub type Input = xlsx::Source<File>;

/// One reading of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Detect the format and measure its patterns.
    Probe,
    /// Measure the patterns of a file of this format, of which its name tells more than its bytes.
    ProbeAs(Format),
    /// Extract the text of a file of this format.
    Extract(Format),
    /// Read the main content of a web page.
    WebPage(PageSource),
    /// List a workbook's sheets.
    Workbook,
    /// Read a workbook's shared strings: a stream of [`Answer::SharedStrings`].
    SharedStrings,
    /// Measure a sheet, given by its position among the tabs.
    ProfileSheet { sheet: u32, sketch_columns: bool },
    /// Read a sheet's rows as records: a stream of [`Answer::Records`]. `tables` finds them wherever they stand.
    Records { sheet: u32, tables: bool },
    /// Read a rectangle of a sheet; the caller has checked its area.
    Cells { sheet: u32, range: Range },
    /// Read the members of a container of this format: a stream of [`Answer::Member`].
    Members(Format),
    /// Read the pictures and charts of a file of this format: a stream of [`Answer::Image`].
    Images(Format),
    /// Read templates, and render one; the file is a [`crate::TemplateJob`] as JSON.
    Template,
    /// Draw a page of a PDF: an [`Answer::Picture`], then its pixels as [`Answer::Pixels`].
    Picture { page: u32, raster: Raster },
}

impl Step {
    /// The most bytes that one encoded answer may have, whatever the sum of all answers.
    fn largest_answer(&self, limits: &Limits) -> u64 {
        match self {
            Self::Extract(_) | Self::WebPage(_) => limits.answer_bytes,
            _ => limits.answer_bytes.min(64 << 20),
        }
    }

    /// The most bytes that go as they are.
    fn most_bytes(&self, limits: &Limits) -> u64 {
        match self {
            Self::Picture { raster, .. } => raster.pixels,
            Self::Images(_) => limits.image_bytes,
            _ => limits.member_bytes,
        }
    }

    /// The answer that such bytes are.
    fn of_bytes(&self, bytes: Vec<u8>) -> Answer {
        match self {
            Self::Picture { .. } => Answer::Pixels(bytes),
            Self::Images(_) => Answer::Image(ImagePart::Bytes(bytes)),
            _ => Answer::Member(MemberPart::Bytes(bytes)),
        }
    }
}

impl Request {
    /// Makes a request for a file that needs no password.
    pub fn new(step: Step, limits: Limits) -> Self {
        Self { step, limits, password: None }
    }
}

/// What a reading found. A step with many answers emits them one by one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The detection is valid even if measuring failed.
    Probed {
        detection: Detection,
        patterns: Result<Patterns, FormatError>,
        /// Why no reader can open it, although its patterns were measured.
        refusal: Option<FormatError>,
        /// What a zip archive says it holds.
        archive: Option<Archive>,
    },
    Extracted(Extraction),
    /// How many pages of the file the extraction that is under way has read.
    Pages(Pages),
    WebPage(Box<WebPage>),
    Workbook(Workbook),
    SharedStrings(Vec<String>),
    SheetProfile(SheetProfile),
    Records(RecordsPart),
    Cells(Cells),
    Member(MemberPart),
    Image(ImagePart),
    Template(TemplateRead),
    Picture(PictureSize),
    /// Some of the pixels of a picture, row by row, each a byte between black and white.
    Pixels(Vec<u8>),
}

/// How far a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    pub done: u32,
    pub of: u32,
}

/// What a reading cost, as the child measured it at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// The most memory that was resident at once, in bytes.
    pub peak_bytes: u64,
    /// Processor time in milliseconds.
    pub cpu_ms: u64,
}

/// Takes an answer on its way to the parent. A reader that gets an error from it ends with that error.
pub type Emit<'a> = dyn FnMut(Answer) -> Result<(), FormatError> + 'a;

/// Engines recurse, and the main thread's stack has whatever size the shell gave it.
const STACK_BYTES: usize = 64 << 20;

/// What the child does with the file once it is confined: [`answer`], except in tests of the walls themselves.
pub type Work = fn(&Request, Input, &mut Emit<'_>) -> Result<(), FormatError>;

/// Runs the child: takes the request from standard output, confines this process, has `work` done on standard input,
/// which must be seekable, and writes the answers to standard output. The process must do nothing else.
pub fn serve(work: Work) -> ExitCode {
    confinement::close_inherited();
    // This is a File, because reading from a socket type takes a call that the confined child does not have.
    let stdout = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let stdin = io::stdin().as_fd().try_clone_to_owned().map(File::from);
    let (Ok(channel), Ok(input)) = (stdout, stdin) else { return ExitCode::from(2) };
    let Ok((request, confinement, shared_strings)) = Request::receive(&channel) else { return ExitCode::from(2) };
    let input = Input { file: input, shared_strings };
    // This is opened before opening is forbidden. What `getrusage` says of memory would start at the parent's own.
    let status = File::open("/proc/self/status");
    let mut out = frames::Encoder::new(channel, &request);
    let mut lacking = Vec::new();
    let result = confinement.enter().and_then(|missing| {
        lacking = missing;
        in_thread(|| {
            let mapped = status.as_ref().map_or(0, |status| field(status, "VmSize:"));
            confinement.seal(&request.limits, mapped, &mut lacking)?;
            work(&request, input, &mut |answer| out.answer(&answer))
        })
    });
    match out.end(result, usage(status.ok()), lacking) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs `work` on a stack of a known size.
fn in_thread(work: impl FnOnce() -> Result<(), FormatError> + Send) -> Result<(), FormatError> {
    thread::scope(|scope| {
        let reader = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        match reader.map(thread::ScopedJoinHandle::join) {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(FormatError::crashed(panic_text(panic.as_ref()))),
            Err(error) => Err(FormatError::Io { reason: format!("the reader could not start: {error}") }),
        }
    })
}

/// A field of this process's status, in bytes; 0 if it cannot be read.
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

/// Does the step in this process, for the child and for tests that trust the file.
///
/// # Errors
/// What the reader met, or what `emit` returned.
pub fn answer(request: &Request, input: Input, emit: &mut Emit<'_>) -> Result<(), FormatError> {
    let limits = &request.limits;
    let access = Access { limits, password: request.password.as_ref(), pages: None };
    let Input { file, shared_strings } = input;
    let mut input = BufReader::new(file);
    let workbook = |file| xlsx::Source { file, shared_strings };
    match &request.step {
        Step::Probe | Step::ProbeAs(_) => {
            let detection = match &request.step {
                Step::ProbeAs(format) => Detection::of(*format, DetectedBy::ContentSniff),
                _ => detect(&mut input)?,
            };
            let Some(format) = detection.format else {
                let patterns = Err(FormatError::UnknownFormat);
                return emit(Answer::Probed { detection, patterns, refusal: None, archive: None });
            };
            let patterns = probe(format, &mut input, access);
            let refusal = patterns.as_ref().ok().and_then(|patterns| refusal(format, &mut input, patterns));
            let archive = if format == Format::Zip { archive(&mut input)? } else { None };
            emit(Answer::Probed { detection, patterns, refusal, archive })
        }
        Step::Extract(format) => {
            let emit = RefCell::new(emit);
            let pages = |done, of| (*emit.borrow_mut())(Answer::Pages(Pages { done, of }));
            let extraction = extract(*format, input, Access { pages: Some(&pages), ..access })?;
            (*emit.borrow_mut())(Answer::Extracted(extraction))
        }
        Step::WebPage(source) => emit(Answer::WebPage(Box::new(web_page::read(input, source, limits)?))),
        Step::Workbook => emit(Answer::Workbook(xlsx::workbook(input, limits)?)),
        Step::SharedStrings => xlsx::shared_strings(input, limits, &mut |texts| emit(Answer::SharedStrings(texts))),
        Step::ProfileSheet { sheet, sketch_columns } => {
            emit(Answer::SheetProfile(xlsx::profile_sheet(workbook(input), *sheet, *sketch_columns, limits)?))
        }
        Step::Records { sheet, tables } => {
            xlsx::records(workbook(input), *sheet, *tables, limits, &mut |part| emit(Answer::Records(part)))
        }
        Step::Cells { sheet, range } => emit(Answer::Cells(xlsx::cells(workbook(input), *sheet, *range, limits)?)),
        Step::Members(format) => members(*format, input, limits, &mut |part| emit(Answer::Member(part))),
        Step::Images(format) => images(*format, input, access, &mut |part| emit(Answer::Image(part))),
        Step::Template => emit(Answer::Template(template(input, limits)?)),
        Step::Picture { page, raster } => {
            let (size, pixels) = pdf::render(input, *page, *raster, access)?;
            emit(Answer::Picture(size))?;
            emit(Answer::Pixels(pixels))
        }
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
    fn a_reading_says_what_it_cost() {
        let usage = usage(File::open("/proc/self/status").ok());
        assert!(usage.peak_bytes > 1 << 20, "{usage:?}");
    }
}
