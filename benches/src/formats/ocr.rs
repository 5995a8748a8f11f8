//! What reading scanned pages costs with all that confines and checks the engine and finds out how a page is turned, beside the engine
//! called bare, and how much of the printed words each finds.
use super::words::f1;
use crate::figure::{Bound, BoxError, Figure, Peer, median};
use std::{
    fs::File,
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::Instant,
};
use svc::{ocr::Engine, reader::Reader, settings::Settings};
use svc_formats::{
    Format, Limits, PictureSize, Raster, extract,
    isolated::{Answer, Request, Step, answer},
};

/// What the share of the words should be at least.
const GOAL: f64 = 0.95;
/// How often each page is read by each side, in turns.
const ROUNDS: usize = 3;
/// Files of the corpus whose printed text is in the order of reading, and the last page to take of each.
const PRINTED: [(&str, usize); 3] = [("crazyones.pdf", 1), ("multi_page.pdf", 3), ("tracemonkey_a11y.pdf", 1)];
/// The pages of the sample.
const SAMPLE_PAGES: usize = 3;

/// Reads pages as a scanner would see them, one after the other on one core.
pub async fn run(out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let Some(program) = installed() else {
        eprintln!("bench: formats/ocr is left out: no Tesseract is here (config/setup.sh ocr)");
        return Ok(());
    };
    let reader = Reader::of_this_program();
    let others =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let others = others.filter(|(name, _)| !name.starts_with("SVC_"));
    let named = others.chain([("SVC_OCR_ENGINE".to_owned(), program.clone())]);
    let settings = Settings::load(Some(Path::new("/dev/null")), named)?;
    let engine = Engine::start(&settings, &reader).await?.ok_or("the settings name no OCR engine")?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let corpus = repository.join("../shared/corpus/pdf");
    let mut files = vec![(repository.join("tests/samples/quarterly-review.pdf"), SAMPLE_PAGES)];
    files.extend(PRINTED.map(|(name, pages)| (corpus.join(name), pages)).into_iter().filter(|(file, _)| file.exists()));
    let (mut our_seconds, mut their_seconds) = (0.0, 0.0);
    let (mut our_shares, mut their_shares) = (Vec::new(), Vec::new());
    for (file, pages) in files {
        let printed = extract(Format::Pdf, File::open(&file)?, &Limits::default())?;
        for page in printed.pages.iter().take(pages) {
            let (size, pixels) = drawn(&file, page.number, engine.raster)?;
            let (mut of_ours, mut of_theirs) = (Vec::new(), Vec::new());
            let (mut ours, mut theirs) = (String::new(), String::new());
            for _ in 0..ROUNDS {
                let start = Instant::now();
                ours = engine.recognise(&size, &pixels).await?.text;
                of_ours.push(start.elapsed().as_secs_f64());
                let start = Instant::now();
                theirs = bare(&program, engine.languages(), &size, &pixels)?;
                of_theirs.push(start.elapsed().as_secs_f64());
            }
            our_seconds += median(&mut of_ours);
            their_seconds += median(&mut of_theirs);
            let expected = &printed.text[page.start..page.end];
            let (our_share, their_share) = (f1(&ours, expected), f1(&theirs, expected));
            eprintln!("bench: formats/ocr: page {} of {}: {our_share:.3}", page.number, file.display());
            our_shares.push(our_share);
            their_shares.push(their_share);
        }
    }
    let count = our_shares.len();
    let peer = |value| Peer { name: "tesseract", version: engine.name().into(), value };
    let milliseconds = |seconds: f64| seconds * 1e3 / count as f64;
    out(Figure::beside("formats/ocr", count, "ms/page", milliseconds(our_seconds), peer(milliseconds(their_seconds))));
    let mean = |shares: &[f64]| shares.iter().sum::<f64>() / count as f64;
    let (our_share, their_share) = (mean(&our_shares), mean(&their_shares));
    let figure = Figure::beside("formats/ocr_words", count, "word F1", our_share, peer(their_share));
    // Of shares, more is better.
    out(Figure { ratio: Some(our_share / their_share), ..figure }.meant_to_be(Bound::OursAtLeast(GOAL)));
    Ok(())
}

/// The Tesseract that setup.sh fetched, or that of this machine.
fn installed() -> Option<String> {
    let cache = std::env::var("SVC_CACHE_DIR").ok();
    let cache = cache.or_else(|| Some(format!("{}/.cache/svc", std::env::var("HOME").ok()?)));
    let fetched = cache.map(|cache| format!("{cache}/ocr/tesseract"));
    let runs =
        |program: &String| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    fetched.into_iter().chain(["tesseract".to_owned()]).find(runs)
}

fn drawn(file: &Path, page: u32, raster: Raster) -> Result<(PictureSize, Vec<u8>), BoxError> {
    let request = Request::new(Step::Picture { page, raster }, Limits::default());
    let (mut size, mut pixels) = (None, Vec::new());
    answer(&request, File::open(file)?.into(), &mut |answer| {
        match answer {
            Answer::Picture(drawn) => size = Some(drawn),
            Answer::Pixels(part) => pixels.extend(part),
            _ => {}
        }
        Ok(())
    })?;
    Ok((size.ok_or("the page was not drawn")?, pixels))
}

/// Has the engine write the words of a picture as a text.
fn bare(program: &str, languages: &str, size: &PictureSize, pixels: &[u8]) -> Result<String, BoxError> {
    let mut child = Command::new(program)
        .args(["stdin", "stdout", "-l", languages, "--dpi", &size.dpi.round().to_string()])
        .env("OMP_THREAD_LIMIT", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // It reads the whole picture before it writes anything.
    if let Some(mut input) = child.stdin.take() {
        write!(input, "P5\n{} {}\n255\n", size.width, size.height)?;
        input.write_all(pixels)?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() { Ok(String::from_utf8(output.stdout)?) } else { Err("the bare engine failed".into()) }
}
