//! The OCR engine: a program that reads a picture on standard input and writes a table of the words on it. It is not ours,
//! so it runs confined and within limits, and nothing that it writes is believed unchecked. Of a PDF it sees only pixels that
//! the reader has drawn; a picture that is a file of its own it unpacks itself.
mod table;

use crate::{
    reader::{PROGRAM_SUBCOMMAND, Reader},
    settings::Settings,
};
use rustix::process::{Pid, Signal, kill_process_group};
use std::{
    env,
    fs::File,
    io,
    path::PathBuf,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};
use svc_formats::{
    PictureSize, Raster,
    isolated::{NOT_STARTED, ProgramLimits},
};
pub use table::{Line, Recognised, Word};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    sync::watch,
    time::timeout,
};

/// The variables of our environment that a program needs to find its libraries and its data.
const PASSED: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "TESSDATA_PREFIX"];
/// A page full of small print takes a fiftieth of it.
const TABLE_BYTES: u64 = 16 << 20;
/// How much of what it complains about is kept.
const COMPLAINT_BYTES: usize = 4 << 10;
/// A line that announces a page is shorter than this.
const PAGE_LINE_BYTES: usize = 32;
/// How many characters of it are shown.
const SHOWN: usize = 200;
/// The longest time that it may take to say what it is.
const START_TIME: Duration = Duration::from_secs(30);
/// The data by which Tesseract finds out how a page is turned, listed among its languages.
const TURNS: &str = "osd";
/// How it is told to do so; without this it reads every page as if it were upright.
const FIND_TURNS: [&str; 2] = ["--psm", "1"];
/// The resolutions that Tesseract believes.
const BELIEVED_DPI: std::ops::RangeInclusive<f64> = 70.0..=2400.0;

/// Why the engine of the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error(
        "the program of SVC_OCR_ENGINE, `{program}`, cannot be used: {reason}; install Tesseract (Debian: apt-get install tesseract-ocr), name its program, or leave the setting blank"
    )]
    Program { program: String, reason: EngineError },
    #[error(
        "the program of SVC_OCR_ENGINE, `{program}`, is no Tesseract: its --version says {said:?}; name another, or leave the setting blank"
    )]
    Other { program: String, said: String },
    #[error("SVC_OCR_LANGUAGES names no language: name at least one of {}", has.join(", "))]
    NoLanguage { has: Vec<String> },
    #[error(
        "SVC_OCR_LANGUAGES names `{language}`, for which `{program}` has no data; it has {}: install it (Debian: apt-get install tesseract-ocr-{language}), or name others", has.join(", ")
    )]
    Language { program: String, language: String, has: Vec<String> },
}

/// Why the engine gave nothing for a page.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    #[error("it cannot be started: {0}")]
    Missing(String),
    #[error("it ran for over {} s, the most that SVC_OCR_PAGE_SECONDS allows", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("it wrote over {TABLE_BYTES} bytes for one page")]
    TooMuch,
    #[error("it ended with {status}{complaint}")]
    Crashed {
        status: String,
        complaint: String,
        /// It ended by itself, with an error of its own; no signal ended it.
        by_itself: bool,
    },
    #[error("what it wrote is no table of words: {0}")]
    Nonsense(String),
}

impl EngineError {
    /// A stable name for evidence and failures.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing(_) => "ocr_engine_missing",
            Self::Timeout(_) => "ocr_engine_timeout",
            Self::TooMuch => "ocr_engine_output",
            Self::Crashed { .. } => "ocr_engine_crashed",
            Self::Nonsense(_) => "ocr_engine_nonsense",
        }
    }
}

/// How long the engine may run: the time for a page, and the number of pages.
#[derive(Debug, Clone, Copy)]
struct Pace {
    page: Duration,
    pages: u32,
}

impl Pace {
    fn of_one(page: Duration) -> Pace {
        Pace { page, pages: 1 }
    }
}

/// Hears the number of each page that begins, except the first.
type Begins<'a> = &'a (dyn Fn(u32) + Sync);

const UNHEARD: Begins<'static> = &|_| {};

/// What the engine reads on its standard input.
enum Input<'a> {
    Bytes(&'a [u8]),
    File(File),
}

/// The engine of the settings.
#[derive(Debug)]
pub struct Engine {
    /// Our own program, which becomes the engine's.
    ours: PathBuf,
    program: String,
    /// As the engine takes them, such as `eng+deu`.
    languages: String,
    version: String,
    /// It has what it needs to find out how a page is turned.
    finds_turns: bool,
    limits: ProgramLimits,
    page_time: Duration,
    pub raster: Raster,
}

impl Engine {
    /// The engine that the settings name, once it has said what it is and which languages it has; `None` if they name none.
    ///
    /// # Errors
    /// It cannot be run, or lacks a language.
    pub async fn start(settings: &Settings, reader: &Reader) -> Result<Option<Engine>, Unusable> {
        if settings.ocr_engine.is_empty() {
            return Ok(None);
        }
        let program = settings.ocr_engine.clone();
        let mut engine = Engine {
            ours: reader.program().to_owned(),
            program: program.clone(),
            languages: settings.ocr_languages.join("+"),
            version: String::new(),
            finds_turns: false,
            limits: ProgramLimits { memory: settings.parser_memory, cpu_time: settings.ocr_page_time },
            page_time: settings.ocr_page_time,
            raster: Raster {
                dpi: u32::try_from(settings.ocr_dpi).unwrap_or(u32::MAX),
                pixels: settings.ocr_pixels as u64,
            },
        };
        let unusable = |reason| Unusable::Program { program: program.clone(), reason };
        let pace = Pace::of_one(START_TIME);
        let said = engine.run(&["--version"], Input::Bytes(&[]), pace, UNHEARD).await.map_err(unusable)?;
        let said = shown(&said);
        engine.version = match said.strip_prefix("tesseract ").and_then(|version| version.split_whitespace().next()) {
            Some(version) => version.to_owned(),
            None => return Err(Unusable::Other { program, said }),
        };
        let listed = engine.run(&["--list-langs"], Input::Bytes(&[]), pace, UNHEARD).await.map_err(unusable)?;
        // The first line names the folder.
        let has: Vec<String> =
            String::from_utf8_lossy(&listed).lines().skip(1).map(|line| shown(line.as_bytes())).collect();
        if settings.ocr_languages.is_empty() {
            return Err(Unusable::NoLanguage { has });
        }
        engine.finds_turns = has.iter().any(|data| data == TURNS);
        match settings.ocr_languages.iter().find(|language| !has.contains(language)) {
            Some(language) => Err(Unusable::Language { program, language: language.clone(), has }),
            None => Ok(Some(engine)),
        }
    }

    /// The program and its version, for the evidence.
    pub fn name(&self) -> String {
        format!("tesseract {}", self.version)
    }

    /// The languages that it reads, joined by `+`.
    pub fn languages(&self) -> &str {
        &self.languages
    }

    /// Reads the words of a picture, whose pixels are bytes between black and white, row by row. Words of a page that was
    /// scanned on its side or upside down are read, too; their boxes are where they are in the picture. Dropping the future
    /// ends the engine and whatever it has started.
    ///
    /// # Errors
    /// It cannot be run, exceeds its limits, or writes what it should not.
    pub async fn recognise(&self, size: &PictureSize, pixels: &[u8]) -> Result<Recognised, EngineError> {
        let dpi = size.dpi.clamp(*BELIEVED_DPI.start(), *BELIEVED_DPI.end()).round().to_string();
        let mut picture = format!("P5\n{} {}\n255\n", size.width, size.height).into_bytes();
        picture.extend_from_slice(pixels);
        let read = self.words(size, &["--dpi", &dpi], Input::Bytes(&picture)).await?;
        // An engine that cannot take such a picture ends with an error.
        Ok(read.unwrap_or_default())
    }

    /// Reads the words of a file that is a picture, as [`Self::recognise`] does; of a file of many, those of the one at this
    /// index. The engine unpacks it, and knows its resolution if the file tells it. `None` if the engine cannot unpack the picture, which
    /// is no error to the engine in a file of many. A caller has looked at the first bytes of the file, because the engine takes a file
    /// that it does not know for a list of files.
    ///
    /// # Errors
    /// As for [`Self::recognise`].
    pub async fn recognise_file(
        &self,
        size: &PictureSize,
        file: File,
        index: Option<usize>,
    ) -> Result<Option<Recognised>, EngineError> {
        let page = index.map(|index| format!("tessedit_page_number={index}"));
        let which: Vec<&str> = page.iter().flat_map(|page| ["-c", page.as_str()]).collect();
        self.words(size, &which, Input::File(file)).await
    }

    /// Reads the words of all pictures of a file, of these sizes, with one start of the engine. The engine ends at the first picture
    /// that it cannot unpack, and does not mention it. Each picture may take as long as one that is read alone, and all together may
    /// write as much as one. `begins` hears which picture the engine has begun.
    ///
    /// # Errors
    /// As for [`Self::recognise`].
    pub async fn recognise_all(
        &self,
        sizes: &[PictureSize],
        file: File,
        begins: Begins<'_>,
    ) -> Result<Vec<Recognised>, EngineError> {
        let pages = u32::try_from(sizes.len()).unwrap_or(u32::MAX);
        let pace = Pace { page: self.page_time, pages };
        let written = self.run(&self.arguments(&[]), Input::File(file), pace, begins).await?;
        table::read_all(&written, sizes).map_err(EngineError::Nonsense)
    }

    async fn words(
        &self,
        size: &PictureSize,
        more: &[&str],
        input: Input<'_>,
    ) -> Result<Option<Recognised>, EngineError> {
        let written = self.run(&self.arguments(more), input, Pace::of_one(self.page_time), UNHEARD).await?;
        table::read(&written, size).map_err(EngineError::Nonsense)
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        let mut arguments = vec!["stdin", "stdout", "-l", &self.languages];
        arguments.extend(more);
        if self.finds_turns {
            arguments.extend(FIND_TURNS);
        }
        arguments.push("tsv");
        arguments
    }

    async fn run(
        &self,
        arguments: &[&str],
        input: Input<'_>,
        pace: Pace,
        begins: Begins<'_>,
    ) -> Result<Vec<u8>, EngineError> {
        let (stdin, bytes) = match input {
            Input::Bytes(bytes) => (Stdio::piped(), bytes),
            Input::File(file) => (Stdio::from(file), &[] as &[u8]),
        };
        let limits = ProgramLimits { cpu_time: self.limits.cpu_time.saturating_mul(pace.pages), ..self.limits };
        let mut command = Command::new(&self.ours);
        command
            .arg(PROGRAM_SUBCOMMAND)
            .args(limits.arguments())
            .arg(&self.program)
            .args(arguments)
            .env_clear()
            .envs(PASSED.iter().filter_map(|name| Some((name, env::var_os(name)?))))
            // Pages are read one by one, so that a task takes one core.
            .env("OMP_THREAD_LIMIT", "1")
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| EngineError::Missing(error.to_string()))?;
        let _group = Group::of(&child);
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (page, mut begun) = watch::channel(1);
        let work = async {
            let (written, complaint, ()) = tokio::try_join!(
                all_written(stdout),
                complaint(stderr, Heard::new(pace.pages), &page),
                written_to(stdin, bytes)
            )?;
            let status = child.wait().await.map_err(broken)?;
            if status.success() { Ok(written) } else { Err(ended(status, &complaint)) }
        };
        let mut work = pin!(work);
        loop {
            // The time of each page runs from its beginning.
            tokio::select! {
                ended = &mut work => return ended,
                page = timeout(pace.page, begun.changed()) => match page {
                    Ok(Ok(())) => begins(*begun.borrow_and_update()),
                    _ => return Err(EngineError::Timeout(pace.page)),
                }
            }
        }
    }
}

/// The process group of the engine, which ends with this value.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Group {
        Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It does not matter if nobody of it is left.
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Gives the engine its input. One that does not want it ends with its own word on why.
async fn written_to(pipe: Option<ChildStdin>, input: &[u8]) -> Result<(), EngineError> {
    if let Some(mut pipe) = pipe {
        let _ = pipe.write_all(input).await;
    }
    Ok(())
}

/// What the engine writes, if that is not too much.
async fn all_written(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, EngineError> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        pipe.take(TABLE_BYTES + 1).read_to_end(&mut bytes).await.map_err(broken)?;
    }
    if bytes.len() as u64 > TABLE_BYTES { Err(EngineError::TooMuch) } else { Ok(bytes) }
}

/// What the engine says beside its table: its complaints, and in a file of many pages the number of each as it begins.
struct Heard {
    kept: Vec<u8>,
    /// The beginning of the line whose end has not come yet.
    line: Vec<u8>,
    /// The last page that has begun, and how many there are.
    page: u32,
    pages: u32,
}

impl Heard {
    fn new(pages: u32) -> Heard {
        Heard { kept: Vec::new(), line: Vec::new(), page: 1, pages }
    }

    /// Takes in what the engine says next; true if another page has begun.
    fn take(&mut self, piece: &[u8]) -> bool {
        let before = self.page;
        let room = COMPLAINT_BYTES.saturating_sub(self.kept.len());
        self.kept.extend(piece.iter().take(room));
        for byte in piece {
            if *byte == b'\n' {
                let line = String::from_utf8_lossy(&self.line);
                let number = line.trim().strip_prefix("Page ").and_then(|number| number.parse::<u32>().ok());
                // The engine gets time for as many pages as there are, whatever it says.
                self.page = number.filter(|number| *number > self.page && *number <= self.pages).unwrap_or(self.page);
                self.line.clear();
            } else if self.line.len() < PAGE_LINE_BYTES {
                self.line.push(*byte);
            }
        }
        self.page > before
    }
}

/// The beginning of the engine's complaints. The rest is read and dropped, so that the engine never waits for us. Tells of each page
/// that begins.
async fn complaint(
    pipe: Option<impl AsyncRead + Unpin>,
    mut heard: Heard,
    begins: &watch::Sender<u32>,
) -> Result<Vec<u8>, EngineError> {
    if let Some(mut pipe) = pipe {
        let mut piece = [0; COMPLAINT_BYTES];
        while let Ok(read @ 1..) = pipe.read(&mut piece).await {
            if heard.take(&piece[..read]) {
                begins.send_replace(heard.page);
            }
        }
    }
    Ok(heard.kept)
}

fn broken(error: io::Error) -> EngineError {
    EngineError::Crashed { status: "a broken pipe".to_owned(), complaint: format!(": {error}"), by_itself: false }
}

fn ended(status: ExitStatus, complaint: &[u8]) -> EngineError {
    let complaint = shown(complaint);
    if status.code() == Some(NOT_STARTED.into()) {
        return EngineError::Missing(complaint);
    }
    let complaint = if complaint.is_empty() { complaint } else { format!(": {complaint}") };
    EngineError::Crashed { status: status.to_string(), complaint, by_itself: status.code().is_some() }
}

/// The first line of a text of the engine as it may be shown.
fn shown(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.chars().filter(|character| !character.is_control()).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_begins_is_heard_once_and_no_more_of_them_than_there_are() {
        let mut heard = Heard::new(3);
        assert!(!heard.take(b"Estimating resolution as 300\nPa"));
        assert!(!heard.take(b"ge 1\nPage 2"), "the line is not over");
        assert!(heard.take(b"\n") && heard.page == 2);
        assert!(!heard.take(b"Page 2\nPage 4\nPage 99999999999\nA Page 3\n"));
        assert!(heard.take(b"Page 3\r\n") && !heard.take(&vec![b'y'; 100_000]));
        assert!(heard.kept.len() <= COMPLAINT_BYTES && heard.line.len() <= PAGE_LINE_BYTES);
        assert!(!Heard::new(1).take(b"Page 2\n"), "a picture that is read alone has its time");
    }
}
