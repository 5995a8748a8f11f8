//! The readers of files beside those of Python: the same files, read warm, in turns by one process on each side.
//!
//! The files are those of the corpus, if it is beside the repository and has the format, else the samples. Large files are
//! made for the run.
mod clock;
mod headings;
mod job;
mod markup;
pub mod ocr;
mod peers;
mod said;
mod shared;
mod tables;
mod words;
mod worker;

use crate::figure::{BoxError, Figure, Peer, median};
use job::{Job, Round, Work};
use peers::{Peers, make_markup};
pub use peers::{folder, installed, make};
use std::path::{Path, PathBuf};
use svc_formats::{ChunkOptions, Format, Limits, chunk, extract};
use worker::Worker;
pub use worker::{SUBCOMMAND, serve};

/// How many rounds over small files count, after one that does not.
const ROUNDS: usize = 7;
/// The pages of the PDF that is read, and of the one that is probed.
const PDF_PAGES: usize = 1000;
const PROBED_PAGES: usize = 500;
/// This makes a stored sheet of about 100 MB.
const PROBED_ROWS: usize = 110_000;
const CHUNKED_BYTES: usize = 2 << 20;
/// The paragraphs of each file in markup.
const PARAGRAPHS: usize = 200;
/// The kinds of PDF with a table on each page, and their pages.
const TABLES: [(&str, usize); 4] =
    [("tables", 200), ("tables-narrow", 60), ("tables-merged", 60), ("tables-continued", 60)];
/// What other readers of many formats read, too.
const DOCUMENTS: [&str; 11] = ["docx", "pptx", "html", "eml", "rtf", "ipynb", "epub", "odt", "odp", "doc", "ppt"];
const WORKBOOKS: [&str; 5] = ["xlsx", "xlsb", "xls", "ods", "csv"];
/// What unstructured reads without pandoc, LibreOffice and models of torch, which rtf, epub and odt, doc and ppt, and pdf need.
const PARTITIONED: [&str; 8] = ["docx", "pptx", "html", "eml", "md", "xlsx", "xls", "csv"];

type Out<'a> = &'a mut dyn FnMut(Figure);

pub fn run(rows: usize, out: Out<'_>) -> Result<(), BoxError> {
    let peers = Peers::install()?;
    let unstructured = Peers::install_unstructured()?;
    let folder = tempfile::Builder::new().prefix("svc-bench.").tempdir()?;
    let made = folder.path().join("markup");
    make_markup(PARAGRAPHS, &made)?;
    let markdown = (Work::Markdown, Work::Markdown);
    let sheets = (Work::Sheets, Work::Sheets);
    for (name, work, peer, files) in [
        ("formats/pdf", (Work::Pdf, Work::Pdf), "pypdfium2", files("pdf")?),
        ("formats/docx", markdown, "markitdown", files("docx")?),
        ("formats/pptx", markdown, "markitdown", files("pptx")?),
        ("formats/html", markdown, "markitdown", with_made("html", &made)?),
        ("formats/ipynb", markdown, "markitdown", with_made("ipynb", &made)?),
        ("formats/epub", markdown, "markitdown", files("epub")?),
        ("formats/xlsx", (Work::Cells, Work::Markdown), "markitdown", files("xlsx")?),
        ("formats/ods", sheets, "python-calamine", files("ods")?),
        ("formats/xls", sheets, "python-calamine", files("xls")?),
        ("formats/csv", (Work::Rows, Work::Rows), "csv of Python", files("csv")?),
        ("formats/eml", (Work::Mail, Work::Mail), "email of Python", with_made("eml", &made)?),
    ] {
        small(name, work, peer, files, &peers, out)?;
    }
    for (ours, kinds) in [(Work::Markdown, &DOCUMENTS[..]), (Work::Cells, &WORKBOOKS[..])] {
        for kind in kinds {
            let name = format!("formats/docling/{kind}");
            small(&name, (ours, Work::Docling), "docling.rs", with_made(kind, &made)?, &peers, out)?;
        }
    }
    for kind in PARTITIONED {
        let ours = if WORKBOOKS.contains(&kind) { Work::Cells } else { Work::Markdown };
        let name = format!("formats/unstructured/{kind}");
        small(&name, (ours, Work::Unstructured), "unstructured", with_made(kind, &made)?, &unstructured, out)?;
    }
    let both = || DOCUMENTS.into_iter().chain(WORKBOOKS);
    shared::run(("docling", "docling.rs"), both(), &made, &peers, out)?;
    shared::run(("markdown", "markitdown"), both(), &made, &peers, out)?;
    shared::run(("unstructured", "unstructured"), PARTITIONED, &made, &unstructured, out)?;
    words::run(out)?;
    headings::run(out)?;
    for (kind, pages) in TABLES {
        tables::run(kind, &make(kind, pages, folder.path())?, &peers, out)?;
    }
    markup::run(&made, out)?;
    chunks(out)?;
    large(
        "formats/pdf_large",
        (Work::Pdf, Some("pypdfium2")),
        ("pages/s", make("pdf", PDF_PAGES, folder.path())?),
        &peers,
        out,
    )?;
    large(
        "formats/xlsx_large",
        (Work::Cells, Some("openpyxl")),
        ("cells/s", make("workbook", rows, folder.path())?),
        &peers,
        out,
    )?;
    for (name, kind, size) in
        [("formats/probe_large_pdf", "pdf", PROBED_PAGES), ("formats/probe_large_xlsx", "stored-workbook", PROBED_ROWS)]
    {
        large(name, (Work::Probe, None), ("ms", make(kind, size, folder.path())?), &peers, out)?;
    }
    Ok(())
}

/// The files of a format, by name: those of the first folder that has any.
fn files(extension: &str) -> Result<Vec<PathBuf>, BoxError> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let corpus = repository.join("../shared/corpus");
    let [samples, of_formats] = ["tests/samples", "formats/tests/files"].map(|folder| repository.join(folder));
    for folder in [corpus.join(extension), samples, of_formats, corpus.join("ole2")] {
        if !folder.is_dir() {
            continue;
        }
        let files = with_extension(&folder.canonicalize()?, extension)?;
        if !files.is_empty() {
            eprintln!("bench: {} files of {}", files.len(), folder.display());
            return Ok(files);
        }
    }
    Ok(Vec::new())
}

/// The files of a format with those of it that were made for the run.
fn with_made(extension: &str, made: &Path) -> Result<Vec<PathBuf>, BoxError> {
    let mut files = files(extension)?;
    files.extend(with_extension(made, extension)?);
    Ok(files)
}

/// The files of a folder whose names end so, by name.
fn with_extension(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, BoxError> {
    let mut files = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A warm reading of many small files. A file that one side does not read counts for neither.
fn small(
    name: &str,
    (work, of_peer): (Work, Work),
    peer: &'static str,
    files: Vec<PathBuf>,
    peers: &Peers,
    out: Out<'_>,
) -> Result<(), BoxError> {
    if files.is_empty() {
        eprintln!("bench: {name} is left out: no file of its kind is here");
        return Ok(());
    }
    let mut ours = Worker::start(&Job { work, files: files.clone() })?;
    let mut theirs = peers.start(&Job { work: of_peer, files: files.clone() })?;
    let (mut our_rounds, mut their_rounds) = (Vec::new(), Vec::new());
    for _ in 0..=ROUNDS {
        our_rounds.push(ours.round()?);
        their_rounds.push(theirs.round()?);
    }
    let read = |number: &usize| our_rounds[0].files[*number].is_some() && their_rounds[0].files[*number].is_some();
    let both: Vec<usize> = (0..files.len()).filter(read).collect();
    if both.is_empty() {
        eprintln!("bench: {name} is left out: no file was read by both sides");
        return Ok(());
    }
    for (number, file) in files.iter().enumerate().filter(|(number, _)| !both.contains(number)) {
        let (us, them) = (our_rounds[0].files[number].is_some(), their_rounds[0].files[number].is_some());
        eprintln!("bench: {name}: {} counts for neither: read by us {us}, by {peer} {them}", file.display());
    }
    // A figure for PDF is per page, by our count; the others are per file.
    let counted = |number: usize| our_rounds[0].files[number].as_ref().map_or(0, |done| done.count);
    let n =
        if work == Work::Pdf { both.iter().map(|&number| counted(number)).sum::<u64>() as usize } else { both.len() };
    let milliseconds = |rounds: &[Round]| {
        let middle = |&number: &usize| {
            let seconds = rounds[1..].iter().filter_map(|round| Some(round.files[number].as_ref()?.seconds));
            median(&mut seconds.collect::<Vec<_>>())
        };
        both.iter().map(middle).sum::<f64>() * 1e3 / n as f64
    };
    let unit = if work == Work::Pdf { "ms/page" } else { "ms/file" };
    let version = their_rounds[0].version.clone().into();
    let value = milliseconds(&their_rounds);
    out(Figure::beside(name, n, unit, milliseconds(&our_rounds), Peer { name: peer, version, value }));
    Ok(())
}

/// One cold reading of a large file by its own process: the time, the count and the memory.
fn large(
    name: &str,
    (work, peer): (Work, Option<&'static str>),
    (unit, file): (&'static str, PathBuf),
    peers: &Peers,
    out: Out<'_>,
) -> Result<(), BoxError> {
    let bytes = std::fs::metadata(&file)?.len();
    eprintln!("bench: {name}: a file of {} MB", bytes >> 20);
    let job = Job { work, files: vec![file] };
    let once = |mut worker: Worker| {
        let round = worker.round()?;
        let megabytes = round.peak_bytes as f64 / f64::from(1 << 20);
        let done = round.files.first().cloned().flatten();
        Ok::<_, BoxError>(done.map(|done| (done.seconds, done.count, megabytes, round.version)))
    };
    let Some((seconds, count, megabytes, _)) = once(Worker::start(&job)?)? else {
        eprintln!("bench: {name} is left out: the file was not read");
        return Ok(());
    };
    let theirs = match peer {
        Some(peer) => once(peers.start(&job)?)?.map(|once| (peer, once)),
        None => None,
    };
    let mut figure = |suffix: &str, unit, ours, of: fn(f64, u64, f64) -> f64| {
        let name = format!("{name}{suffix}");
        let n = count as usize;
        out(match &theirs {
            Some((peer, (seconds, count, megabytes, version))) => {
                let value = of(*seconds, *count, *megabytes);
                Figure::beside(&name, n, unit, ours, Peer { name: peer, version: version.clone().into(), value })
            }
            None => Figure::alone(&name, n, unit, ours),
        });
    };
    if peer.is_some() {
        figure("", "s", seconds, |seconds, _, _| seconds);
        figure("_rate", unit, count as f64 / seconds, |seconds, count, _| count as f64 / seconds);
    } else {
        figure("", unit, seconds * 1e3, |seconds, _, _| seconds * 1e3);
    }
    figure("_peak", "MB", megabytes, |_, _, megabytes| megabytes);
    Ok(())
}

/// Cuts text into chunks, counting words as tokens: only the cutting, without a model's tokenizer.
fn chunks(out: Out<'_>) -> Result<(), BoxError> {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples/handbook.md");
    let text = extract(Format::Text, std::fs::File::open(sample)?, &Limits::default())?.text;
    let text = text.repeat(CHUNKED_BYTES.div_ceil(text.len()));
    let words = |unit: &str| unit.split_whitespace().count();
    let mut seconds = Vec::new();
    let mut chunks = 0;
    for _ in 0..5 {
        let clock = clock::Clock::start();
        chunks = chunk(&text, 0..text.len(), &ChunkOptions::default(), &words).len();
        seconds.push(clock.seconds());
    }
    let megabytes = text.len() as f64 / 1e6;
    out(Figure::alone("formats/chunk", chunks, "MB/s", megabytes / median(&mut seconds)));
    Ok(())
}
