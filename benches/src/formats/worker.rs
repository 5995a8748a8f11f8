//! A process that does a job, and our own side of it.
use super::{
    clock::Clock,
    job::{Done, Job, Round, Work},
};
use crate::figure::BoxError;
use std::{
    fs::File,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio},
};
use svc_formats::{
    FormatError, Limits, detect,
    isolated::{Answer, Emit, Request, Step, answer},
    xlsx::SheetKind,
};

/// The hidden first argument that makes this program our side of a job.
pub const SUBCOMMAND: &str = "bench-read";

/// A process that has been given its job; it ends when dropped.
pub struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts this program as our side.
    pub fn start(job: &Job) -> Result<Self, BoxError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(SUBCOMMAND);
        Self::spawn(command, job)
    }

    pub fn spawn(mut command: Command, job: &Job) -> Result<Self, BoxError> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the pipes were asked for".into());
        };
        serde_json::to_writer(&mut input, job)?;
        input.write_all(b"\n")?;
        Ok(Self { child, input: Some(input), output: BufReader::new(output) })
    }

    /// Has the process read every file once.
    pub fn round(&mut self) -> Result<Round, BoxError> {
        self.input.as_mut().ok_or("the process was ended")?.write_all(b"\n")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).map_err(|error| format!("a side of the bench ended early: {error}").into())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The process ends when its input ends.
        self.input = None;
        let _ = self.child.wait();
    }
}

/// Our side: reads a job and then its rounds from standard input.
pub fn serve() -> ExitCode {
    match rounds() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn rounds() -> Result<(), BoxError> {
    let mut lines = std::io::stdin().lock().lines();
    let job: Job = serde_json::from_str(&lines.next().ok_or("no job came")??)?;
    for (number, line) in lines.enumerate() {
        line?;
        let files = job.files.iter().map(|file| timed(job.work, file, number == 0)).collect();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &Round { version, files, peak_bytes: peak_bytes()? })?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

/// A refusal is the same in every round, so `say` prints it once.
fn timed(work: Work, file: &Path, say: bool) -> Option<Done> {
    let clock = Clock::start();
    match read(work, file) {
        Ok(count) => Some(Done { seconds: clock.seconds(), count }),
        Err(error) => {
            if say {
                eprintln!("bench: {}: {error}", file.display());
            }
            None
        }
    }
}

fn read(work: Work, file: &Path) -> Result<u64, FormatError> {
    let limits = Limits::default();
    let step = match work {
        Work::Pdf | Work::Markdown | Work::Docling | Work::Unstructured | Work::Mail => {
            let format = detect(&mut BufReader::new(File::open(file)?))?.format;
            Step::Extract(format.ok_or(FormatError::UnknownFormat)?)
        }
        Work::Cells | Work::Sheets | Work::Rows => return cells(file, &limits),
        Work::Probe => Step::Probe,
    };
    let mut count = 0;
    ask(step, file, &limits, &mut |answer| {
        count += match answer {
            Answer::Extracted(read) if work == Work::Pdf => read.pages.len() as u64,
            Answer::Extracted(read) => read.text.len() as u64,
            Answer::Probed { patterns, .. } => patterns.map(|_| 1)?,
            _ => 0,
        };
        Ok(())
    })?;
    Ok(count)
}

fn cells(file: &Path, limits: &Limits) -> Result<u64, FormatError> {
    let mut sheets = Vec::new();
    ask(Step::Workbook, file, limits, &mut |answer| {
        if let Answer::Workbook(workbook) = answer {
            sheets = workbook.sheets;
        }
        Ok(())
    })?;
    let mut count = 0;
    for sheet in sheets.iter().filter(|sheet| sheet.kind == SheetKind::Worksheet) {
        ask(Step::ProfileSheet { sheet: sheet.index, sketch_columns: true }, file, limits, &mut |answer| {
            if let Answer::SheetProfile(profile) = answer {
                count += profile.nonempty_cells;
            }
            Ok(())
        })?;
        ask(Step::Records { sheet: sheet.index, tables: true }, file, limits, &mut |answer| {
            std::hint::black_box(answer);
            Ok(())
        })?;
    }
    Ok(count)
}

fn ask(step: Step, file: &Path, limits: &Limits, emit: &mut Emit<'_>) -> Result<(), FormatError> {
    answer(&Request::new(step, limits.clone()), File::open(file)?.into(), emit)
}

fn peak_bytes() -> Result<u64, BoxError> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kilobytes =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
    Ok(kilobytes.map(|kilobytes: u64| kilobytes * 1024).ok_or("the kernel counts no memory here")?)
}
