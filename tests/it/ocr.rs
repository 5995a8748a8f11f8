//! Scanned pages: what an OCR engine reads on them is the text of their file. Where no engine is here, the tests that need a
//! real one are left out; those of broken engines bring their own.
mod pictures;
mod places;

use crate::support::{TestApp, Wish, reader, repository, sample, settings, until};
use flate2::{Compression, write::ZlibEncoder};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use svc::ocr::Engine;
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{Bm25Search, DocumentPath, FrontierResponse, PlanOutcome, Settled, UploadQuery},
};
use svc_formats::{
    Format, Limits, PictureSize, Raster,
    isolated::{Answer, Request, Step, answer},
};

/// The Tesseract of this machine, or the one that setup.sh fetched.
fn tesseract() -> Option<String> {
    let fetched = settings(&[]).cache_dir.join("ocr/tesseract").display().to_string();
    let runs =
        |program: &str| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    let found = [fetched, "tesseract".to_owned()].into_iter().find(|program| runs(program));
    if found.is_none() {
        crate::support::left_out("no OCR engine here, so nothing read scanned pages");
    }
    found
}

/// A page of a file made by a test.
enum Page {
    Text(&'static str),
    /// Text of a font that does not say what its glyphs are.
    Unknown,
    Scan(PictureSize, Vec<u8>),
}

/// A page as a scanner would see it.
fn scanned(path: &Path, page: u32) -> Page {
    let raster = Raster { dpi: 300, pixels: 20_000_000 };
    let request = Request::new(Step::Picture { page, raster }, Limits::default());
    let (mut size, mut pixels) = (None, Vec::new());
    answer(&request, File::open(path).unwrap().into(), &mut |answer| {
        match answer {
            Answer::Picture(drawn) => size = Some(drawn),
            Answer::Pixels(part) => pixels.extend(part),
            other => panic!("{other:?}"),
        }
        Ok(())
    })
    .unwrap();
    Page::Scan(size.unwrap(), pixels)
}

/// A PDF of these pages, with an outline if there are titles for it. A scan has no text, only its picture.
fn pdf(pages: &[Page], outline: &[(&str, usize)]) -> Vec<u8> {
    let stream = |entries: &str, data: &[u8]| {
        let mut object = format!("<< {entries} /Length {} >> stream\n", data.len()).into_bytes();
        object.extend_from_slice(data);
        object.extend_from_slice(b"\nendstream");
        object
    };
    let of_page = |index: usize| 10 + 3 * index;
    let mut objects: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    let outlines = if outline.is_empty() { "" } else { "/Outlines 5 0 R" };
    objects.insert(1, format!("<< /Type /Catalog /Pages 2 0 R {outlines} >>").into_bytes());
    let kids: String = (0..pages.len()).map(|index| format!("{} 0 R ", of_page(index))).collect();
    objects.insert(2, format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", pages.len()).into_bytes());
    objects.insert(3, b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_vec());
    let unknown = "/Type /Font /Subtype /Type1 /BaseFont /Odd /Encoding << /Differences [97 /qqqa /qqqb /qqqc] >> /FontDescriptor << /Type /FontDescriptor /FontName /Odd /Flags 4 >> /FirstChar 97 /LastChar 99 /Widths [600 600 600]";
    objects.insert(4, format!("<< {unknown} >>").into_bytes());
    let entry = |index: usize| 10 + 3 * pages.len() + index;
    objects.insert(5, format!("<< /First {} 0 R >>", entry(0)).into_bytes());
    for (index, (title, page)) in outline.iter().enumerate() {
        let next = if index + 1 < outline.len() { format!("/Next {} 0 R", entry(index + 1)) } else { String::new() };
        let dest = format!("/Dest [{} 0 R /Fit]", of_page(*page));
        objects.insert(entry(index), format!("<< /Title ({title}) {dest} {next} >>").into_bytes());
    }
    for (index, page) in pages.iter().enumerate() {
        let number = of_page(index);
        let (width, height, content) = match page {
            Page::Text(text) => (595.0, 842.0, format!("BT /F1 12 Tf 72 700 Td ({text}) Tj ET")),
            Page::Unknown => (595.0, 842.0, "BT /F2 12 Tf 72 700 Td (abcabcabc) Tj ET".to_owned()),
            Page::Scan(size, pixels) => {
                let points = |pixels: u32| f64::from(pixels) * 72.0 / size.dpi;
                let (width, height) = (points(size.width), points(size.height));
                let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
                packed.write_all(pixels).unwrap();
                let entries = format!(
                    "/Type /XObject /Subtype /Image /Width {} /Height {} /ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /FlateDecode",
                    size.width, size.height
                );
                objects.insert(number + 2, stream(&entries, &packed.finish().unwrap()));
                (width, height, format!("q {width} 0 0 {height} 0 0 cm /Im Do Q"))
            }
        };
        let resources =
            format!("/Resources << /Font << /F1 3 0 R /F2 4 0 R >> /XObject << /Im {} 0 R >> >>", number + 2);
        objects.insert(
            number,
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] {resources} /Contents {} 0 R >>",
                number + 1
            )
            .into_bytes(),
        );
        objects.insert(number + 1, stream("", content.as_bytes()));
    }
    let (mut file, mut table) = (b"%PDF-1.7\n".to_vec(), "xref\n0 1\n0000000000 65535 f \n".to_owned());
    for (number, body) in &objects {
        table += &format!("{number} 1\n{:010} 00000 n \n", file.len());
        file.extend_from_slice(format!("{number} 0 obj\n").as_bytes());
        file.extend_from_slice(body);
        file.extend_from_slice(b"\nendobj\n");
    }
    let start = file.len();
    file.extend_from_slice(
        format!("{table}trailer << /Root 1 0 R /Size 1000 >>\nstartxref\n{start}\n%%EOF\n").as_bytes(),
    );
    file
}

/// The words of a text, in lower case and without punctuation around them, with their numbers.
fn words(text: &str) -> BTreeMap<String, usize> {
    let mut words = BTreeMap::new();
    for word in text.split_whitespace() {
        let word = word.trim_matches(|character: char| !character.is_alphanumeric()).to_lowercase();
        if !word.is_empty() {
            *words.entry(word).or_default() += 1;
        }
    }
    words
}

/// The F1 of the words that were read against those that are there.
fn f1(read: &str, truth: &str) -> f64 {
    let (read, truth) = (words(read), words(truth));
    let same: usize = truth.iter().map(|(word, count)| read.get(word).copied().unwrap_or_default().min(*count)).sum();
    2.0 * same as f64 / (read.values().sum::<usize>() + truth.values().sum::<usize>()) as f64
}

/// The text of a file's pages, as its text layer has it.
fn truth(path: &Path, pages: u32) -> String {
    let read = svc_formats::extract(Format::Pdf, File::open(path).unwrap(), &Limits::default()).unwrap();
    read.pages.iter().take(pages as usize).map(|page| read.text[page.start..page.end].to_owned() + "\n").collect()
}

async fn ingested(app: &TestApp, name: &str, bytes: Vec<u8>) -> (i64, FrontierResponse) {
    let id = app.upload_bytes(name, bytes).await.unwrap().document_id;
    (id, app.settled(id).await)
}

async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

/// The stored text of a file.
async fn text(app: &TestApp, id: i64) -> String {
    sqlx::query_scalar("SELECT text FROM extractions WHERE document_id = $1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

fn outcomes(plan: &Value) -> BTreeMap<&str, &str> {
    let rows = plan["tasks"].as_array().unwrap().iter();
    rows.map(|row| (row["task"].as_str().unwrap(), row["outcome"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn the_words_of_scanned_pages_are_those_that_were_printed() {
    let Some(engine) = tesseract() else { return };
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let corpus = repository().join("../shared/corpus/pdf");
    // Their pages are prose: an engine takes the dots of a table of contents for words.
    let files = [
        (sample("quarterly-review.pdf"), 3),
        (corpus.join("multi_page.pdf"), 2),
        (corpus.join("nested_outline.pdf"), 2),
        (corpus.join("structure_simple.pdf"), 1),
    ];
    for (path, pages) in files.iter().filter(|(path, _)| path.exists()) {
        let printed = truth(path, *pages);
        let pictures: Vec<Page> = (1..=*pages).map(|page| scanned(path, page)).collect();
        let (id, frontier) = ingested(&app, "scan.pdf", pdf(&pictures, &[])).await;
        assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]), "{}", path.display());
        let (read, of_file) = (text(&app, id).await, evidence(&app, id).await);
        let same = f1(&read, &printed);
        println!("{}: {pages} pages, word F1 {same:.3}, confidence {}", path.display(), of_file["ocr"]["confidence"]);
        assert_eq!(of_file["ocr"]["pages"], json!(pages));
        assert!(same >= 0.95, "{}:\n{read}\n---\n{printed}", path.display());
    }
    app.end().await;
}

/// A scan as it comes out if the page was laid in by a quarter turn further to the right, so many times.
fn turned(page: Page, quarters: usize) -> Page {
    let Page::Scan(mut size, mut pixels) = page else { panic!("only scans are turned") };
    for _ in 0..quarters {
        let (width, height) = (size.width as usize, size.height as usize);
        // Its first column, read upwards, becomes the first row.
        pixels =
            (0..width).flat_map(|x| (0..height).rev().map(move |y| y * width + x)).map(|place| pixels[place]).collect();
        (size.width, size.height) = (size.height, size.width);
    }
    Page::Scan(size, pixels)
}

#[tokio::test]
async fn scans_that_lie_on_their_side_or_upside_down_are_read() {
    let Some(engine) = tesseract() else { return };
    let listed = Command::new(&engine).arg("--list-langs").output().unwrap().stdout;
    if !String::from_utf8_lossy(&listed).lines().any(|line| line == "osd") {
        return crate::support::left_out("the OCR engine lacks its data for turned pages (osd), so none was read");
    }
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let path = sample("quarterly-review.pdf");
    let printed = truth(&path, 1);
    for quarters in 1..4 {
        let scan = pdf(&[turned(scanned(&path, 1), quarters)], &[]);
        let (id, frontier) = ingested(&app, &format!("turned-{quarters}.pdf"), scan).await;
        assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]), "{quarters} quarter turns");
        let read = text(&app, id).await;
        assert!(f1(&read, &printed) >= 0.95, "{quarters} quarter turns:\n{read}\n---\n{printed}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_scan_is_found_by_its_words_on_their_page_and_its_outline_makes_sections() {
    let Some(engine) = tesseract() else { return };
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let path = sample("quarterly-review.pdf");
    let pages = || vec![scanned(&path, 1), scanned(&path, 2), scanned(&path, 3)];
    let (id, frontier) = ingested(&app, "scan.pdf", pdf(&pages(), &[])).await;
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]));
    let of_file = evidence(&app, id).await;
    assert_eq!(of_file["extract.empty"], Value::Null, "{of_file}");
    let planned = outcomes(&of_file["plan"]);
    assert_eq!(
        [planned["ocr"], planned["structure:inferred"], planned["extract:text"]],
        ["enqueued", "enqueued", "not_applicable"]
    );
    let attempts = of_file["attempts"].as_array().unwrap().iter();
    // The pictures of a file are read beside its text.
    let attempts: Vec<&str> = attempts
        .map(|attempt| attempt["task_type"].as_str().unwrap())
        .filter(|task| *task != "extract:images")
        .collect();
    assert_eq!(attempts[..3], ["probe", "ocr", "structure:inferred"], "{attempts:?}");
    assert_eq!(of_file["scanned_pages"], json!([1, 2, 3]));
    let ocr = &of_file["ocr"];
    assert!(ocr["engine"].as_str().unwrap().starts_with("tesseract ") && ocr["languages"] == "eng", "{ocr}");
    assert!(ocr["confidence"].as_f64().unwrap() > 80.0 && ocr["words"].as_u64().unwrap() > 50, "{ocr}");
    let third = &of_file["ocr.words"]["pages"][2];
    assert_eq!(third["page"], 3);
    for word in third["words"].as_array().unwrap() {
        let [text, left, top, width, height, confidence] = word.as_array().unwrap().as_slice() else {
            panic!("{word}")
        };
        assert!(!text.as_str().unwrap().is_empty() && confidence.as_f64().unwrap() <= 100.0, "{word}");
        let number = |value: &Value| value.as_f64().unwrap();
        assert!(
            number(left) + number(width) <= 620.0 && number(top) + number(height) <= 850.0,
            "within the page: {word}"
        );
    }

    // A word of the second page that no other page has.
    let printed = truth_by_page(&path);
    let rare = words(&printed[1])
        .into_keys()
        .find(|word| {
            word.len() > 6
                && word.chars().all(char::is_alphabetic)
                && ![0, 2].iter().any(|at| words(&printed[*at]).contains_key(word))
        })
        .unwrap();
    let found = app.client.search_bm25(Json(Bm25Search::new(&rare))).await.unwrap();
    let first = &found.results[0].document;
    assert!(first.path.contains(&id), "{rare}: {found:?}");
    let anchor = evidence(&app, first.id).await["anchor"].clone();
    assert!(anchor.to_string().contains("\"page"), "{anchor}");

    // Explain and analyze say the same as what was queued.
    let analyzed = app.client.analyze_file(FileUpload::from_bytes("scan.pdf", pdf(&pages(), &[]), None)).await.unwrap();
    assert_eq!(serde_json::to_value(&analyzed.plan.unwrap().tasks).unwrap(), of_file["plan"]["tasks"]);
    let explain = json!({"format": "pdf", "patterns": of_file["matched.patterns"]});
    let explained = app.client.explain_ingest(Json(serde_json::from_value(explain).unwrap())).await.unwrap();
    assert_eq!(serde_json::to_value(&explained.tasks).unwrap(), of_file["plan"]["tasks"]);
    let unknown =
        app.client.explain_ingest(Json(serde_json::from_value(json!({"format": "pdf"})).unwrap())).await.unwrap();
    let row = unknown.tasks.iter().find(|row| row.task == "ocr").unwrap();
    assert_eq!((row.outcome, row.if_condition_holds), (PlanOutcome::Conditional, Some(PlanOutcome::Enqueued)));

    let outline = [("First part", 0), ("Second part", 1), ("Third part", 2)];
    let (id, frontier) = ingested(&app, "outlined.pdf", pdf(&pages(), &outline)).await;
    assert_eq!(frontier.settled, Settled::Settled);
    assert_eq!(outcomes(&evidence(&app, id).await["plan"])["structure:declared"], "enqueued");
    let sections = app.subtree(id).await;
    let titles: Vec<_> =
        sections.iter().filter(|node| node.usetype == "section").map(|node| node.title.as_str()).collect();
    assert_eq!(titles, ["First part", "Second part", "Third part"]);
    app.end().await;
}

fn truth_by_page(path: &Path) -> Vec<String> {
    let read = svc_formats::extract(Format::Pdf, File::open(path).unwrap(), &Limits::default()).unwrap();
    read.pages.iter().map(|page| read.text[page.start..page.end].to_owned()).collect()
}

#[tokio::test]
async fn a_scanned_page_stands_between_the_text_of_the_others_and_what_is_not_read_is_said() {
    let Some(engine) = tesseract() else { return };
    let wished = [("SVC_OCR_ENGINE", engine.as_str()), ("SVC_OCR_PAGES", "1")];
    let app = TestApp::with(Wish { settings: &wished, ..Wish::default() }).await;
    let path = sample("quarterly-review.pdf");
    let pages = [
        Page::Text("Herons before the scan"),
        scanned(&path, 2),
        Page::Text("Kingfishers after it"),
        scanned(&path, 3),
    ];
    let (id, frontier) = ingested(&app, "mixed.pdf", pdf(&pages, &[])).await;
    assert_eq!(
        (frontier.settled, frontier.warnings),
        (Settled::Settled, vec!["ocr.left_out: 1 (ocr_pages): 4".to_owned()])
    );
    let text = text(&app, id).await;
    assert!(text.starts_with("Herons before the scan\n\n") && text.ends_with("\n\nKingfishers after it"), "{text}");
    assert!(f1(&text, &truth_by_page(&path)[1]) > 0.8, "{text}");
    let of_file = evidence(&app, id).await;
    assert_eq!(of_file["ocr.left_out"], json!({"count": 1, "reasons": {"ocr_pages": 1}, "first": [4]}));
    assert_eq!((&of_file["scanned_pages"], &of_file["extract.text"]["page_count"]), (&json!([2, 4]), &json!(4)));
    assert_eq!(of_file["extract.text"]["characters"], json!(text.chars().count()));

    // The probe looks at every second of 40 pages, and the scan is another.
    let mut many: Vec<Page> = (0..40).map(|_| Page::Text("Egrets, page after page")).collect();
    many[1] = scanned(&path, 2);
    let (id, frontier) = ingested(&app, "many.pdf", pdf(&many, &[])).await;
    assert_eq!(frontier.warnings, ["ocr.left_out: 1 (not_probed): 2"]);
    assert_eq!(outcomes(&evidence(&app, id).await["plan"])["ocr"], "not_applicable");
    app.end().await;
}

#[tokio::test]
async fn scans_are_not_read_where_an_option_says_so_and_the_file_says_that() {
    let Some(engine) = tesseract() else { return };
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let path = sample("quarterly-review.pdf");
    let off = Some(json!({"skip": {"ocr": true}}));
    let upload = |bytes: &[u8], options| FileUpload::from_bytes("scan.pdf", bytes.to_vec(), options);
    let scan = pdf(&[scanned(&path, 1)], &[]);
    let analysis = app.client.analyze_file(upload(&scan, off.clone())).await.unwrap();
    let id = app.client.upload_file(UploadQuery::default(), upload(&scan, off.clone())).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!(
        (frontier.settled, frontier.warnings),
        (Settled::Settled, vec!["extract.empty: ocr_skipped".to_owned()])
    );
    let of_file = evidence(&app, id).await;
    assert_eq!(serde_json::to_value(&analysis.plan.unwrap().tasks).unwrap(), of_file["plan"]["tasks"]);
    let row = of_file["plan"]["tasks"].as_array().unwrap().iter().find(|row| row["task"] == "ocr").unwrap();
    assert_eq!((&row["outcome"], &row["reason"]), (&json!("skipped"), &json!("the option skip.ocr is true")));
    let refused = app.client.upload_file(UploadQuery::default(), upload(&scan, None)).await.unwrap_err();
    assert_eq!(refused.code, Code::StoredWithOtherOptions);
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
    assert_eq!(app.settled(id).await.warnings, Vec::<String>::new());
    assert!(!text(&app, id).await.is_empty());

    let mixed = pdf(&[Page::Text("Herons before the scan"), scanned(&path, 2)], &[]);
    let id = app.client.upload_file(UploadQuery::default(), upload(&mixed, off)).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.warnings, ["ocr.left_out: 1 (ocr_skipped): 2"]);
    app.end().await;
}

#[tokio::test]
async fn without_an_engine_a_scan_waits_for_one_and_with_one_a_reprocess_reads_it_again() {
    let bytes = pdf(&[scanned(&sample("quarterly-review.pdf"), 1)], &[]);
    let app = TestApp::start().await;
    let (id, frontier) = ingested(&app, "scan.pdf", bytes.clone()).await;
    assert_eq!(frontier.settled, Settled::Settled);
    assert_eq!(frontier.warnings, ["extract.empty: needs_ocr (set SVC_OCR_ENGINE, and reprocess the file)"]);
    let of_file = evidence(&app, id).await;
    assert_eq!(of_file["extract.empty"], "needs_ocr");
    let planned = outcomes(&of_file["plan"]);
    assert_eq!([planned["ocr"], planned["structure:inferred"]], ["deferred", "not_applicable"]);
    let row = of_file["plan"]["tasks"].as_array().unwrap().iter().find(|row| row["task"] == "ocr").unwrap();
    assert!(row["reason"].as_str().unwrap().contains("SVC_OCR_ENGINE"), "{row}");
    app.end().await;

    let Some(engine) = tesseract() else { return };
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let (id, _) = ingested(&app, "scan.pdf", bytes).await;
    let before = text(&app, id).await;
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]));
    assert_eq!(text(&app, id).await, before);
    assert_eq!(evidence(&app, id).await["reprocess"]["state"], "done");

    let size = PictureSize { width: 1240, height: 1754, dpi: 150.0 };
    let blank = vec![Page::Scan(size, vec![255; size.pixels() as usize])];
    let (_, frontier) = ingested(&app, "blank.pdf", pdf(&blank, &[])).await;
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec!["extract.empty: no_text".to_owned()]));
    app.end().await;
}

/// A program that says that it is Tesseract, and does something else with a page.
fn impostor(folder: &Path, deed: &str) -> String {
    let path = folder.join("engine");
    let script = format!(
        "#!/bin/sh\ncase $1 in\n--version) echo 'tesseract 5.0-fake' ;;\n--list-langs) printf 'Languages (1):\\neng\\n' ;;\n*) {deed} ;;\nesac\n"
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// The processes one of whose arguments is this.
fn processes(argument: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let has = |path: PathBuf| {
        fs::read(path.join("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes()))
    };
    entries.filter(|entry| has(entry.path())).count()
}

#[tokio::test]
async fn an_engine_that_hangs_crashes_or_babbles_ends_its_task_with_its_reason_and_leaves_nothing_running() {
    let folder = tempfile::tempdir().unwrap();
    // A small page, which a machine that has much else to do draws within the engine's time too.
    let small = Page::Scan(PictureSize { width: 300, height: 400, dpi: 72.0 }, vec![255; 300 * 400]);
    let bytes = pdf(&[small], &[]);
    // A number of seconds that no other process sleeps.
    let nap = format!("86400.{}", std::process::id());
    for (deed, code, message) in [
        (format!("sleep {nap} & sleep {nap}"), "ocr_engine_timeout", "SVC_OCR_PAGE_SECONDS"),
        ("kill -SEGV $$".to_owned(), "ocr_engine_crashed", "signal: 11"),
        (format!("sleep {nap} >/dev/null 2>&1 </dev/null & exit 3"), "ocr_engine_crashed", "exit status: 3"),
        ("echo 'Error in pixReadStream: all is lost'".to_owned(), "ocr_engine_nonsense", "no table of words"),
        ("exec yes".to_owned(), "ocr_engine_output", "bytes for one page"),
        ("yes >&2".to_owned(), "ocr_engine_timeout", "SVC_OCR_PAGE_SECONDS"),
    ] {
        let engine = impostor(folder.path(), &deed);
        let wished = [("SVC_OCR_ENGINE", engine.as_str()), ("SVC_OCR_PAGE_SECONDS", "5")];
        let app = TestApp::with(Wish { settings: &wished, ..Wish::default() }).await;
        let id = app.upload_bytes("scan.pdf", bytes.clone()).await.unwrap().document_id;
        let attempt = until("an attempt that failed", async || {
            let of_file = evidence(&app, id).await;
            of_file["attempts"].as_array()?.iter().find(|attempt| attempt["outcome"] == "failed").cloned()
        })
        .await;
        assert_eq!((&attempt["task_type"], &attempt["code"]), (&json!("ocr"), &json!(code)), "{deed}: {attempt}");
        assert!(attempt["message"].as_str().unwrap().contains(message), "{deed}: {attempt}");
        if code == "ocr_engine_timeout" {
            app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
        }
        assert_eq!(app.settled(id).await.settled, Settled::Failed, "{deed}");
        let gone = async || (processes(&nap) + processes(&engine) == 0).then_some(());
        until(&format!("nothing to be left running of {deed}"), gone).await;
        app.end().await;
    }
}

#[tokio::test]
async fn a_cancelled_file_ends_the_engine_that_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let nap = format!("86300.{}", std::process::id());
    let engine = impostor(folder.path(), &format!("sleep {nap} & sleep {nap}"));
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let bytes = pdf(&[scanned(&sample("quarterly-review.pdf"), 1)], &[]);
    let id = app.upload_bytes("scan.pdf", bytes).await.unwrap().document_id;
    until("the engine to run", async || (processes(&nap) == 2).then_some(())).await;
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    until("the engine to end", async || (processes(&nap) == 0).then_some(())).await;
    assert_eq!(app.settled(id).await.settled, Settled::Failed);
    app.end().await;
}

#[tokio::test]
async fn an_engine_that_fails_on_one_page_leaves_the_others_their_text() {
    let folder = tempfile::tempdir().unwrap();
    // A picture of a page that is wider than high.
    let deed = r#"head -c 12 | { read magic; read width height; [ "$width" -lt "$height" ] || kill -SEGV $$
        printf 'level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n5\t1\t1\t1\t1\t1\t10\t10\t90\t20\t96.5\tbittern\n'; cat >/dev/null; }"#;
    let engine = impostor(folder.path(), deed);
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let blank =
        |width, height| Page::Scan(PictureSize { width, height, dpi: 72.0 }, vec![255; (width * height) as usize]);
    let pages = [blank(300, 400), blank(400, 300), blank(300, 400)];
    let (id, frontier) = ingested(&app, "scan.pdf", pdf(&pages, &[])).await;
    assert_eq!(
        (frontier.settled, frontier.warnings),
        (Settled::Settled, vec!["ocr.left_out: 1 (ocr_engine_crashed): 2".to_owned()])
    );
    assert_eq!(text(&app, id).await, "bittern\n\nbittern");
    // A text layer is not lost because no page of the others can be read.
    let (id, frontier) = ingested(&app, "mixed.pdf", pdf(&[Page::Text("A heron"), blank(400, 300)], &[])).await;
    assert_eq!(
        (frontier.settled, frontier.warnings),
        (Settled::Settled, vec!["ocr.left_out: 1 (ocr_engine_crashed): 2".to_owned()])
    );
    assert_eq!(text(&app, id).await, "A heron");
    app.end().await;
}

/// What an engine does that reads one word on every page.
const ONE_WORD: &str = r"cat >/dev/null; printf 'level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext\n5\t1\t1\t1\t1\t1\t10\t10\t90\t20\t96.5\tbittern\n'";

#[tokio::test]
async fn pages_whose_fonts_cannot_be_read_get_what_the_engine_reads_and_without_one_are_named() {
    let mixed = || pdf(&[Page::Text("A heron before"), Page::Unknown, Page::Text("An egret after")], &[]);
    let whole = || pdf(&[Page::Unknown], &[]);
    let app = TestApp::start().await;
    let (id, frontier) = ingested(&app, "mixed.pdf", mixed()).await;
    let warning = "ocr.left_out: 1 (no_ocr_engine): 2 (set SVC_OCR_ENGINE, and reprocess the file)";
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![warning.to_owned()]));
    let of_file = evidence(&app, id).await;
    assert_eq!((&of_file["unusable_pages"], &of_file["scanned_pages"]), (&json!([2]), &Value::Null), "{of_file}");
    assert_eq!(outcomes(&of_file["plan"])["ocr"], "deferred");
    assert_eq!(text(&app, id).await, "A heron before\n\nAn egret after");
    let (_, frontier) = ingested(&app, "whole.pdf", whole()).await;
    assert_eq!(frontier.warnings, ["extract.empty: needs_ocr (set SVC_OCR_ENGINE, and reprocess the file)"]);
    app.end().await;

    let folder = tempfile::tempdir().unwrap();
    let engine = impostor(folder.path(), ONE_WORD);
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    for (name, bytes, page, expected) in
        [("mixed.pdf", mixed(), 2, "A heron before\n\nbittern\n\nAn egret after"), ("whole.pdf", whole(), 1, "bittern")]
    {
        let (id, frontier) = ingested(&app, name, bytes).await;
        assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]), "{name}");
        assert_eq!(text(&app, id).await, expected);
        let read = evidence(&app, id).await["ocr"]["by_page"].clone();
        assert_eq!((&read[0]["page"], &read[0]["why"]), (&json!(page), &json!("unknown_glyphs")), "{read}");
    }
    app.end().await;
}

#[tokio::test]
async fn an_engine_finds_turned_pages_if_it_has_its_data_for_them() {
    let folder = tempfile::tempdir().unwrap();
    // It reads on each page what it was called with.
    let columns = "level page_num block_num par_num line_num word_num left top width height conf text";
    let header = columns.replace(' ', "\\t");
    let deed = format!(r#"printf '{header}\n5\t1\t1\t1\t1\t1\t0\t0\t9\t9\t90\t%s\n' "$*""#);
    let size = PictureSize { width: 20, height: 10, dpi: 300.0 };
    for (data, called) in
        [("eng", "stdin stdout -l eng --dpi 300 tsv"), ("eng\\nosd", "stdin stdout -l eng --dpi 300 --psm 1 tsv")]
    {
        let engine = impostor(folder.path(), &deed);
        let script = fs::read_to_string(&engine).unwrap().replace("eng\\n", &format!("{data}\\n"));
        fs::write(&engine, script).unwrap();
        let settings = settings(&[("SVC_OCR_ENGINE", &engine)]);
        let engine = Engine::start(&settings, &reader()).await.unwrap().unwrap();
        assert_eq!(engine.recognise(&size, &[255; 200]).await.unwrap().text, called);
    }
}

#[tokio::test]
async fn an_engine_that_cannot_be_used_is_refused_at_the_start_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let start = async |wished: &[(&str, &str)]| {
        let settings = settings(wished);
        Engine::start(&settings, &reader()).await.map(|engine| engine.is_some()).map_err(|error| error.to_string())
    };
    assert_eq!(start(&[]).await, Ok(false));
    let engine = impostor(folder.path(), "exit 1");
    assert_eq!(start(&[("SVC_OCR_ENGINE", &engine)]).await, Ok(true));
    let refused = async |wished: &[(&str, &str)]| start(wished).await.unwrap_err();
    let missing = refused(&[("SVC_OCR_ENGINE", "/nowhere/tesseract")]).await;
    assert!(missing.contains("SVC_OCR_ENGINE, `/nowhere/tesseract`") && missing.contains("No such file"), "{missing}");
    let other = refused(&[("SVC_OCR_ENGINE", "/bin/echo")]).await;
    assert!(other.contains("is no Tesseract"), "{other}");
    let wished = [("SVC_OCR_ENGINE", engine.as_str()), ("SVC_OCR_LANGUAGES", "eng,tlh")];
    let language = refused(&wished).await;
    assert!(language.contains("`tlh`") && language.contains("it has eng"), "{language}");
    let none = refused(&[("SVC_OCR_ENGINE", &engine), ("SVC_OCR_LANGUAGES", "[]")]).await;
    assert!(none.contains("SVC_OCR_LANGUAGES"), "{none}");
}
