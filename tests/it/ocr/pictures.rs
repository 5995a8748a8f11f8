//! Files that are pictures: an engine reads them as they are, and without one they are stored and say what they wait for.
use super::{ONE_WORD, evidence, f1, impostor, ingested, outcomes, scanned, tesseract, text, truth_by_page};
use crate::{
    members::archive,
    support::{TestApp, Wish, sample, until},
};
use flate2::{Compression, write::ZlibEncoder};
use serde_json::json;
use std::{io::Write, path::Path};
use svc_client::{
    Json,
    wire::{Bm25Search, CheckedPart, DocumentResponse, ReadinessCheck, Settled, TaskQuery},
};

/// The head of a PNG of these sides, behind which there are no pixels.
fn head(width: u32, height: u32) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    png.extend([width, height].map(u32::to_be_bytes).concat());
    png.extend(b"\x08\0\0\0\0");
    png
}

/// The first page of a file as a photograph would show it.
fn photograph(path: &Path) -> Vec<u8> {
    let super::Page::Scan(size, pixels) = scanned(path, 1) else { panic!("a scan") };
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], data: &[u8]| {
        png.extend((data.len() as u32).to_be_bytes());
        let named = [&kind[..], data].concat();
        png.extend(&named);
        let mut sum = flate2::Crc::new();
        sum.update(&named);
        png.extend(sum.sum().to_be_bytes());
    };
    let mut header = [size.width, size.height].map(u32::to_be_bytes).concat();
    header.extend(b"\x08\0\0\0\0");
    chunk(b"IHDR", &header);
    let mut packed = ZlibEncoder::new(Vec::new(), Compression::fast());
    for row in pixels.chunks(size.width as usize) {
        // No filter.
        packed.write_all(&[0]).unwrap();
        packed.write_all(row).unwrap();
    }
    chunk(b"IDAT", &packed.finish().unwrap());
    chunk(b"IEND", b"");
    png
}

/// The heads of a TIFF's pictures of these sides, behind which there are no pixels.
fn tiff(sides: &[(u32, u32)]) -> Vec<u8> {
    let mut tiff = b"II*\0\x08\0\0\0".to_vec();
    for (index, (width, height)) in sides.iter().enumerate() {
        tiff.extend(2u16.to_le_bytes());
        for (tag, value) in [(256u16, width), (257, height)] {
            tiff.extend(tag.to_le_bytes());
            tiff.extend(b"\x04\0\x01\0\0\0");
            tiff.extend(value.to_le_bytes());
        }
        let next = if index + 1 < sides.len() { tiff.len() as u32 + 4 } else { 0 };
        tiff.extend(next.to_le_bytes());
    }
    tiff
}

async fn member(app: &TestApp, id: i64, title: &str) -> DocumentResponse {
    app.subtree(id).await.into_iter().find(|node| node.title == title).unwrap()
}

#[tokio::test]
async fn a_picture_is_read_by_the_engine_wherever_it_comes_from() {
    let Some(engine) = tesseract() else { return };
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let path = sample("quarterly-review.pdf");
    let picture = photograph(&path);
    let (id, frontier) = ingested(&app, "photo.png", picture.clone()).await;
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]));
    let read = text(&app, id).await;
    assert!(f1(&read, &truth_by_page(&path)[0]) >= 0.95, "{read}");
    let of_file = evidence(&app, id).await;
    let detected = &of_file["detected"];
    assert_eq!((&detected["format"], &detected["mime"]), (&json!("image"), &json!("image/png")));
    let page = &of_file["ocr"]["by_page"][0];
    assert_eq!((&page["why"], &page["dpi"]), (&json!("picture"), &json!(null)), "{page}");

    let word = read.split_whitespace().find(|word| word.len() > 6 && word.chars().all(char::is_alphabetic)).unwrap();
    let (container, frontier) = ingested(&app, "photos.zip", archive(&[("photo.png", picture)])).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{:?}", frontier.warnings);
    let found = app.client.search_bm25(Json(Bm25Search::new(word))).await.unwrap();
    for file in [id, member(&app, container, "photo.png").await.id] {
        assert!(found.results.iter().any(|result| result.document.path.contains(&file)), "{word}: {found:?}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_picture_that_is_too_large_small_or_broken_is_stored_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let engine = impostor(folder.path(), ONE_WORD);
    let wished = [("SVC_OCR_ENGINE", engine.as_str()), ("SVC_OCR_PIXELS", "10000")];
    let app = TestApp::with(Wish { settings: &wished, ..Wish::default() }).await;
    let (needs, damaged) = ("extract.empty: needs_ocr", "extract.empty: damaged");
    for (name, bytes, warnings) in [
        ("large.png", head(101, 100), &[needs, "ocr.left_out: 1 (ocr_pixels): 1"][..]),
        ("fits.png", head(100, 100), &[]),
        ("cut.png", head(100, 100)[..18].to_vec(), &[damaged, "ocr.left_out: 1 (damaged): 1"]),
        ("dot.png", head(1, 1), &["extract.empty: no_text"]),
    ] {
        let (id, frontier) = ingested(&app, name, bytes).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{name}");
        assert_eq!(frontier.warnings, warnings, "{name}");
        if warnings.is_empty() {
            assert_eq!(text(&app, id).await, "bittern");
        }
    }
    app.end().await;

    // An engine that cannot unpack one, or dies of it, fails neither it nor what it came in.
    for (deed, empty, reason) in [("exit 1", damaged, "damaged"), ("kill -SEGV $$", needs, "ocr_engine_crashed")] {
        let engine = impostor(folder.path(), deed);
        let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
        let bundle = archive(&[("a.png", head(100, 100)), ("note.txt", b"The heron is grey.".to_vec())]);
        let (id, frontier) = ingested(&app, "bundle.zip", bundle).await;
        assert_eq!((frontier.settled, frontier.nodes_failed, frontier.warnings), (Settled::Settled, 0, vec![]));
        let picture = member(&app, id, "a.png").await.id;
        let warnings = app.settled(picture).await.warnings;
        assert_eq!(
            warnings,
            [empty.to_owned(), format!("ocr.left_out: 1 ({reason}): 1")],
            "no engine is to be installed"
        );
        app.end().await;
    }
}

#[tokio::test]
async fn each_picture_of_a_tiff_is_a_page_with_limits_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    // It is asked for each picture by its number, which counts from 0.
    let deed = format!("case \"$*\" in *page_number=1*) exit 1 ;; *page_number=*) ;; *) exit 2 ;; esac; {ONE_WORD}");
    let engine = impostor(folder.path(), &deed);
    let wished = [("SVC_OCR_ENGINE", engine.as_str()), ("SVC_OCR_PIXELS", "10000")];
    let app = TestApp::with(Wish { settings: &wished, ..Wish::default() }).await;
    let sides = [(100, 100), (100, 100), (101, 100), (0, 100), (100, 90)];
    let (id, frontier) = ingested(&app, "fax.tiff", tiff(&sides)).await;
    let warning = "ocr.left_out: 3 (damaged, ocr_pixels): 2, 3, 4";
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![warning.to_owned()]));
    assert_eq!(text(&app, id).await, "bittern\n\nbittern");
    let of_file = evidence(&app, id).await;
    let pages: Vec<_> = of_file["ocr"]["by_page"].as_array().unwrap().iter().map(|page| &page["page"]).collect();
    assert_eq!(pages, [1, 5]);
    assert_eq!(of_file["extract.text"]["pages"], 5);
    app.end().await;
}

/// The rows of an engine's table for a page with this word, or with none.
fn row(page: u32, word: &str) -> String {
    let row = |rest: &str| format!(r"{rest}\n").replace(' ', r"\t");
    let shown = row(&format!("1 {page} 0 0 0 0 0 0 100 100 -1 "));
    if word.is_empty() { shown } else { shown + &row(&format!("5 {page} 1 1 1 1 10 10 50 20 96 {word}")) }
}

/// A script that writes a table of these rows.
fn writes(rows: &[String]) -> String {
    let columns = "level page_num block_num par_num line_num word_num left top width height conf text";
    format!(r"cat >/dev/null; printf '{}\n{}'", columns.replace(' ', r"\t"), rows.concat())
}

#[tokio::test]
async fn the_pictures_of_a_tiff_are_read_with_one_start_of_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let rows = [row(1, "bittern"), row(2, ""), row(3, "egret")];
    // Asked for one of them alone, it ends badly.
    let deed = format!("case \"$*\" in *page_number=*) exit 1 ;; esac; {}", writes(&rows));
    let engine = impostor(folder.path(), &deed);
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let (id, frontier) = ingested(&app, "fax.tiff", tiff(&[(100, 100); 3])).await;
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![]));
    assert_eq!(text(&app, id).await, "bittern\n\negret");
    let of_file = evidence(&app, id).await;
    let pages: Vec<_> = of_file["ocr"]["by_page"].as_array().unwrap().iter().map(|page| &page["page"]).collect();
    assert_eq!(pages, [1, 2, 3]);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_says_how_many_pictures_of_a_tiff_are_done_while_the_engine_reads_them_with_one_start() {
    let folder = tempfile::tempdir().unwrap();
    // The engine stays at the third picture until this file appears.
    let go = folder.path().join("go");
    let rows = [row(1, "bittern"), row(2, ""), row(3, "egret")];
    let wait = format!("until [ -e '{}' ]; do sleep 0.05; done", go.display());
    let deed = format!("for n in 1 2 3; do echo \"Page $n\" >&2; done; {wait}; {}", writes(&rows));
    let engine = impostor(folder.path(), &deed);
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let id = app.upload_bytes("fax.tiff", tiff(&[(100, 100); 3])).await.unwrap().document_id;
    let progress = until("two of its pictures are done", async || {
        let tasks = app.client.list_tasks(TaskQuery::default()).await.unwrap().tasks;
        let mut told = tasks.into_iter().filter_map(|task| task.running?.progress);
        told.find(|progress| (progress.done, progress.of) == (2, 3))
    })
    .await;
    assert_eq!(progress.unit, "pages");
    std::fs::write(&go, "").unwrap();
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    assert_eq!(text(&app, id).await, "bittern\n\negret");
    app.end().await;
}

#[tokio::test]
async fn a_picture_of_a_tiff_that_the_engine_passes_over_is_named_and_those_behind_it_are_read() {
    let folder = tempfile::tempdir().unwrap();
    // The engine ends at the second picture without an error, as at a truncated one, and says nothing of it even if it reads that picture alone.
    let (first, none, third) = (writes(&[row(1, "bittern")]), writes(&[]), writes(&[row(1, "egret")]));
    let deed = format!(
        "case \"$*\" in *page_number=1*) {none} ;; *page_number=2*) {third} ;; *page_number=0*) exit 3 ;; *) {first} ;; esac"
    );
    let engine = impostor(folder.path(), &deed);
    let wished = [("SVC_OCR_ENGINE", engine.as_str())];
    let app = TestApp::with(Wish { settings: &wished, ..Wish::default() }).await;
    let (id, frontier) = ingested(&app, "cut.tiff", tiff(&[(100, 100); 3])).await;
    let warning = "ocr.left_out: 1 (damaged): 2";
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![warning.to_owned()]));
    assert_eq!(text(&app, id).await, "bittern\n\negret");
    app.end().await;

    // Of a file of one picture it may say nothing either.
    let engine = impostor(folder.path(), &none);
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    let (_, frontier) = ingested(&app, "cut.tiff", tiff(&[(100, 100)])).await;
    assert_eq!(frontier.warnings, ["extract.empty: damaged", "ocr.left_out: 1 (damaged): 1"]);
    app.end().await;
}

#[tokio::test]
async fn a_picture_within_which_its_file_ends_is_named_although_a_part_of_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let engine = impostor(folder.path(), ONE_WORD);
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    // Its sides, and the place and the length of its only strip.
    let mut cut = b"II*\0\x08\0\0\0\x04\0".to_vec();
    for (tag, value) in [(256u16, 100u32), (257, 100), (273, 200), (279, 1250)] {
        cut.extend(tag.to_le_bytes());
        cut.extend(b"\x04\0\x01\0\0\0");
        cut.extend(value.to_le_bytes());
    }
    let named = ["ocr.left_out: 1 (cut): 1"];
    for (bytes, warnings) in [(1450, &named[1..]), (1449, &named[..])] {
        cut.resize(bytes, 0);
        let (id, frontier) = ingested(&app, &format!("{bytes}.tiff"), cut.clone()).await;
        assert_eq!((frontier.settled, text(&app, id).await.as_str()), (Settled::Settled, "bittern"), "{bytes}");
        assert_eq!(frontier.warnings, warnings, "{bytes}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_picture_of_a_tiff_on_which_the_engine_hangs_has_its_own_time_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    // If it reads all pictures at once, it begins one page after the other and hangs on the third.
    let hang = "echo 'Page 2' >&2; echo 'Page 3' >&2; exec sleep 600";
    let (first, second) = (writes(&[row(1, "bittern")]), writes(&[row(1, "egret")]));
    let deed = format!(
        "case \"$*\" in *page_number=0*) {first} ;; *page_number=1*) {second} ;; *page_number=2*) exec sleep 600 ;; *) {hang} ;; esac"
    );
    let engine = impostor(folder.path(), &deed);
    let wished = [("SVC_OCR_ENGINE", engine.as_str()), ("SVC_OCR_PAGE_SECONDS", "2")];
    let app = TestApp::with(Wish { settings: &wished, ..Wish::default() }).await;
    let (id, frontier) = ingested(&app, "slow.tiff", tiff(&[(100, 100); 3])).await;
    let warning = "ocr.left_out: 1 (ocr_engine_timeout): 3";
    assert_eq!((frontier.settled, frontier.warnings), (Settled::Settled, vec![warning.to_owned()]));
    assert_eq!(text(&app, id).await, "bittern\n\negret");
    app.end().await;
}

#[tokio::test]
async fn without_an_engine_a_picture_waits_for_one_and_fails_nothing() {
    let app = TestApp::start().await;
    let jpeg = b"\xFF\xD8\xFF\xE0\0\x04ab\xFF\xC0\0\x11\x08\x01\xE0\x02\x80\x03".to_vec();
    let message = b"From: a@orchard.example.org\r\nTo: b@orchard.example.org\r\nSubject: A photo\r\nMIME-Version: 1.0\r\n\
        Content-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\nContent-Type: text/plain\r\n\r\nThe photo of the pond.\r\n--x\r\n\
        Content-Type: image/gif; name=\"pond.gif\"\r\nContent-Disposition: attachment\r\nContent-Transfer-Encoding: base64\r\n\r\n\
        R0lGODlhgALgAQAAAA==\r\n--x--\r\n";
    let (id, frontier) = ingested(&app, "photo.jpg", jpeg).await;
    assert_eq!(frontier.settled, Settled::Settled);
    assert_eq!(frontier.warnings, ["extract.empty: needs_ocr (set SVC_OCR_ENGINE, and reprocess the file)"]);
    let of_file = evidence(&app, id).await;
    let planned = outcomes(&of_file["plan"]);
    assert_eq!((planned["ocr"], planned["extract:text"]), ("deferred", "not_applicable"));
    assert_eq!(of_file["detected"]["mime"], "image/jpeg");
    let (id, frontier) = ingested(&app, "photo.eml", message.to_vec()).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{:?}", frontier.warnings);
    let attached = evidence(&app, member(&app, id, "pond.gif").await.id).await;
    assert_eq!((&attached["detected"]["mime"], &attached["extract.empty"]), (&json!("image/gif"), &json!("needs_ocr")));
    app.end().await;
}

/// What `/ready` says of the engine, whether or not the service is ready.
async fn engine_of(app: &TestApp) -> ReadinessCheck {
    let checks: Vec<ReadinessCheck> = match app.client.read_readiness().await {
        Ok(ready) => ready.checks,
        Err(failure) => serde_json::from_value(failure.members["checks"].clone()).unwrap(),
    };
    checks.into_iter().find(|check| check.name == CheckedPart::Ocr).unwrap()
}

#[tokio::test]
async fn a_service_says_which_engine_it_has_and_is_ready_without_one() {
    let app = TestApp::start().await;
    let none = engine_of(&app).await;
    assert!(none.ok && none.detail.contains("SVC_OCR_ENGINE"), "{none:?}");
    app.end().await;
    let folder = tempfile::tempdir().unwrap();
    let engine = impostor(folder.path(), ONE_WORD);
    let app = TestApp::with(Wish { settings: &[("SVC_OCR_ENGINE", &engine)], ..Wish::default() }).await;
    assert_eq!(engine_of(&app).await.detail, "tesseract 5.0-fake, eng");
    app.end().await;
}
