//! Runs a real child on hostile files: each must end in an answer or a named, permanent refusal, and cost little.
//!
//! The test is its own child: started with `--serve` and a deed, it is the service's hidden subcommand.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../child/mod.rs"]
mod child;
mod workbooks;

use nix::sys::resource::{UsageWho, getrusage};
use std::{
    fs::File,
    io::{Cursor, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};
use svc_formats::{
    Format, FormatError, Limit, Limits, PictureSize, Raster, Secret,
    isolated::{Answer, Confinement, Request, Step, Usage, Work, answer, serve},
    xlsx::RecordsPart,
};
use zip::{ZipWriter, write::SimpleFileOptions};

/// The most resident memory that one hostile file may cost.
const MOST_BYTES: i64 = 300 << 20;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--serve") {
        return serve(work(&arguments.next().expect("a deed follows")));
    }
    if std::env::args().any(|argument| argument == "--list") {
        println!("isolation: test");
        return ExitCode::SUCCESS;
    }
    samples_answer();
    a_password_reaches_the_child();
    pages_are_drawn();
    hostile_files_cost_little();
    large_tables_cost_little();
    hostile_pages_end_named();
    hostile_messages_end_named();
    hostile_json_ends_named();
    hostile_rtf_ends_named();
    hostile_xml_ends_named();
    hostile_packages_end_named();
    workbooks::hostile_ones_end_named();
    // This comes last, because its children are large on purpose and the count is of the largest so far.
    memory_ends_named();
    println!("isolation ... ok");
    ExitCode::SUCCESS
}

/// What a child does once it is confined.
fn work(deed: &str) -> Work {
    match deed {
        "eat" => |_, _, _| {
            let mut eaten: Vec<Vec<u8>> = Vec::new();
            loop {
                eaten.push(vec![1; 64 << 20]);
                std::hint::black_box(&eaten);
            }
        },
        "spin" => |_, _, _| {
            loop {
                std::hint::spin_loop();
            }
        },
        "recurse" => |_, _, _| Err(FormatError::Io { reason: deep(1).to_string() }),
        _ => answer,
    }
}

fn deep(level: u64) -> u64 {
    let here = std::hint::black_box([level; 64]);
    if level == u64::MAX { here[0] } else { deep(level + 1) + here[63] }
}

fn run(deed: &str, request: &Request, input: &Path) -> child::Outcome {
    child::start(&["--serve", deed], request, Confinement::default(), File::open(input).unwrap()).finish()
}

/// The only answer of a step, and what it cost.
fn ask(request: &Request, input: &Path) -> Result<(Answer, Usage), FormatError> {
    let outcome = run("answer", request, input);
    let usage = outcome.end?;
    assert!(outcome.lacking.iter().all(|wall| wall.starts_with("landlock")), "{:?}", outcome.lacking);
    let [answer] = <[Answer; 1]>::try_from(outcome.answers).expect("one answer");
    Ok((answer, usage))
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn samples_answer() {
    let sample = repository().join("tests/samples/quarterly-review.pdf");
    let limits = Limits::default();
    let Ok((Answer::Probed { detection, patterns: Ok(_), .. }, _)) =
        ask(&Request::new(Step::Probe, limits.clone()), &sample)
    else {
        panic!("the sample probes")
    };
    assert_eq!(detection.format, Some(Format::Pdf));
    let extract = |limits| ask(&Request::new(Step::Extract(Format::Pdf), limits), &sample);
    let Ok((Answer::Extracted(read), usage)) = extract(limits.clone()) else { panic!("the sample reads") };
    assert_eq!(read.pages.len(), 3);
    assert!((1..100 << 20).contains(&usage.peak_bytes), "the reader's own memory: {usage:?}");
    assert!(extract(Limits { memory: 64 << 20, ..limits.clone() }).is_ok(), "the program itself takes nothing of it");
    let error = extract(Limits { pages: 2, ..limits }).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::Pages), "limits reach the child");
}

fn a_password_reaches_the_child() {
    let closed = repository().join("../shared/corpus/pdf/r3-user-password.pdf");
    if !closed.exists() {
        println!("left out: the corpus is not here, so no file was opened with a password");
        return;
    }
    let with = |password: Option<&str>| {
        let password = password.map(Secret::new);
        let request = Request { password, ..Request::new(Step::Extract(Format::Pdf), Limits::default()) };
        ask(&request, &closed).map(|(answer, _)| answer)
    };
    assert!(matches!(with(Some("asdfzxcv")), Ok(Answer::Extracted(read)) if read.text.contains("encryption test")));
    for refused in [None, Some("wrong")] {
        let error = with(refused).unwrap_err();
        assert!(error.code() == "encrypted" && error.is_permanent(), "{error}");
        assert!(error.to_string().contains("extract.password"), "the remedy has a name: {error}");
    }
}

/// The picture of a page of a PDF, drawn by a child.
fn drawn(input: &Path, page: u32, limits: Limits) -> Result<(PictureSize, Vec<u8>), FormatError> {
    let raster = Raster { dpi: 300, pixels: 20_000_000 };
    let outcome = run("answer", &Request::new(Step::Picture { page, raster }, limits), input);
    outcome.end?;
    let mut answers = outcome.answers.into_iter();
    let Some(Answer::Picture(size)) = answers.next() else { panic!("the size comes first") };
    let mut pixels = Vec::new();
    for answer in answers {
        let Answer::Pixels(part) = answer else { panic!("then come the pixels") };
        pixels.extend(part);
    }
    assert_eq!(size.pixels(), pixels.len() as u64);
    Ok((size, pixels))
}

/// A PDF of one page with an image of its own.
fn page_with_image(media_box: &str, image: &str, data: &[u8]) -> Vec<u8> {
    let mut file = format!(
        "%PDF-1.7\n1 0 obj\n<< /Type /Catalog /Pages 2 0 R >>\nendobj\n2 0 obj\n<< /Type /Pages /Kids [3 0 R] /Count 1 >>\nendobj\n\
         3 0 obj\n<< /Type /Page /Parent 2 0 R /MediaBox [{media_box}] /Resources << /XObject << /Im 5 0 R >> >> /Contents 4 0 R >>\nendobj\n\
         4 0 obj\n<< /Length 30 >> stream\nq 300 0 0 400 0 0 cm /Im Do Q  \nendstream\nendobj\n\
         5 0 obj\n<< /Type /XObject /Subtype /Image {image} /Length {} >> stream\n",
        data.len()
    )
    .into_bytes();
    file.extend_from_slice(data);
    file.extend_from_slice(b"\nendstream\nendobj\ntrailer << /Root 1 0 R /Size 6 >>\n%%EOF\n");
    file
}

fn pages_are_drawn() {
    let sample = repository().join("tests/samples/quarterly-review.pdf");
    let (size, pixels) = drawn(&sample, 1, Limits::default()).unwrap();
    assert!((290.0..310.0).contains(&size.dpi) && size.height > 3000, "{size:?}");
    let dark = pixels.iter().filter(|pixel| **pixel < 100).count();
    let white = pixels.iter().filter(|pixel| **pixel == 255).count();
    assert!(dark > 1_000 && white > pixels.len() / 2, "{dark} dark and {white} white of {}", pixels.len());
    assert_eq!(drawn(&sample, 9, Limits::default()).unwrap_err().code(), "corrupt");

    let folder = tempfile::tempdir().unwrap();
    let grey = "/Width 2 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8";
    let large = "/Width 60000 /Height 60000 /ColorSpace /DeviceGray /BitsPerComponent 8 /Filter /FlateDecode";
    for (name, media_box, image, data, is_drawn) in [
        ("two pixels", "0 0 300 400", grey, &[0, 255][..], true),
        ("a page of a thousand kilometres", "0 0 3000000000 4000000000", grey, &[0, 255], true),
        ("a page as thin as a hair", "0 0 0.001 4000000", grey, &[0, 255], true),
        ("a page without a size", "0 0 0 0", grey, &[0, 255], true),
        (
            "an image that does not unpack",
            "0 0 300 400",
            "/Width 9 /Height 9 /Filter /JPXDecode",
            b"no such image",
            true,
        ),
        ("an image of billions of pixels", "0 0 300 400", large, &deflated_zeroes(64 << 20), false),
    ] {
        let path = folder.path().join("page.pdf");
        std::fs::write(&path, page_with_image(media_box, image, data)).unwrap();
        let drawn = drawn(&path, 1, Limits::default());
        println!("{name}: {:?}", drawn.as_ref().map(|(size, _)| size).map_err(ToString::to_string));
        match drawn {
            Ok((size, _)) => assert!(size.pixels() <= 20_000_000, "{name}: {size:?}"),
            Err(error) => assert!(!is_drawn && error.is_permanent(), "{name}: {error}"),
        }
    }
}

fn deflated_zeroes(bytes: usize) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&vec![0; bytes]).unwrap();
    encoder.finish().unwrap()
}

fn memory_ends_named() {
    let input = repository().join("tests/samples/empty.txt");
    // A busy machine takes long to hand out memory, so only the deed that is to run out of time gets little of it.
    for (deed, limit, seconds) in
        [("eat", Limit::Memory, 60), ("spin", Limit::CpuTime, 1), ("recurse", Limit::Stack, 60)]
    {
        let limits = Limits { memory: 256 << 20, cpu_time: Duration::from_secs(seconds), ..Limits::default() };
        let outcome = run(deed, &Request::new(Step::Probe, limits), &input);
        let error = outcome.end.unwrap_err();
        assert_eq!((error.limit(), error.is_permanent()), (Some(limit), true), "{deed}: {:?}", outcome.exit);
    }
}

/// What a step on bytes ends with, and the most memory that it took.
fn read_bytes(step: Step, bytes: &[u8]) -> (Vec<Answer>, Result<Usage, FormatError>) {
    read_within(step, bytes, Limits::default())
}

fn read_within(step: Step, bytes: &[u8], limits: Limits) -> (Vec<Answer>, Result<Usage, FormatError>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    std::fs::write(&path, bytes).unwrap();
    let outcome = run("answer", &Request::new(step, limits), &path);
    (outcome.answers, outcome.end)
}

fn large_tables_cost_little() {
    let records = |bytes: &[u8]| read_bytes(Step::Records { sheet: 0, tables: true }, bytes);
    let mut table = "name;place;count\n".to_owned();
    for row in 0..1_000_000 {
        table += &format!("duck {row};mill pond;{}\n", row % 97);
    }
    let (answers, end) = records(table.as_bytes());
    let usage = end.unwrap();
    let read = answers.iter().map(|answer| match answer {
        Answer::Records(RecordsPart::Batch(batch)) => batch.len(),
        _ => 0,
    });
    assert_eq!(read.sum::<usize>(), 1_000_000);
    assert!(usage.peak_bytes < 64 << 20, "a row at a time: {usage:?}");
    let profiled = read_bytes(Step::ProfileSheet { sheet: 0, sketch_columns: true }, table.as_bytes()).1.unwrap();
    assert!(profiled.peak_bytes < 64 << 20, "a row at a time: {profiled:?}");

    // A quote that nobody closes makes one value of the rest, and commas without end one row.
    let open = format!("name,place\nduck,\"{}", "mill, pond\n".repeat(15_000_000));
    let commas = format!("name,place\n{}", ",x".repeat(70_000_000));
    for (table, limit) in [(open, Limit::TextBytes), (commas, Limit::TextBytes)] {
        let error = records(table.as_bytes()).1.unwrap_err();
        assert_eq!(error.limit(), Some(limit), "{error}");
    }
    let (answers, end) = records("\"".repeat(1 << 20).as_bytes());
    assert!(end.is_ok() && !answers.is_empty(), "quotes alone are one value");
}

fn hostile_pages_end_named() {
    let page = |body: String| format!("<!doctype html><html><body><p>Ducks.</p>{body}</body></html>");
    for (name, bytes) in [
        ("nested elements", page("<div>".repeat(200_000))),
        ("cells without end", page(format!("<table><tr>{}", "<td>x".repeat(10 << 20)))),
        ("a cell over a billion columns", page("<table><tr><td colspan=1000000000>Ducks<tr><td>x</table>".to_owned())),
    ] {
        // It does not matter whether the time or the memory ends first.
        let limits = Limits { cpu_time: Duration::from_secs(5), ..Limits::default() };
        let (answers, end) = read_within(Step::Extract(Format::Html), bytes.as_bytes(), limits);
        println!("{name}: {:?}", end.as_ref().map_err(ToString::to_string));
        match end {
            Ok(_) => {
                assert!(matches!(&answers[..], [Answer::Extracted(read)] if read.text.contains("Ducks.")), "{name}")
            }
            Err(error) => assert!(is_named(&error), "{name}: {error}"),
        }
    }
}

/// Whether an error says for good what is too much: by a limit, or in words.
fn is_named(error: &FormatError) -> bool {
    (error.limit().is_some() || error.code() == "unsupported") && error.is_permanent()
}

fn hostile_messages_end_named() {
    let head = "From: a@example.org\nTo: b@example.org\nSubject: Ducks\nMessage-ID: <1@example.org>\n";
    let nested = (0..10_000).fold(head.to_owned(), |text, level| {
        text + &format!("Content-Type: multipart/mixed; boundary=b{level}\n\n--b{level}\n")
    });
    let forwarded = format!("{head}{}", "Content-Type: message/rfc822\n\nSubject: x\n".repeat(100_000));
    let mixed = format!("{head}Content-Type: multipart/mixed; boundary=b\n\n--b\n\nHerons.\n--b\n");
    let encoded = "QUFB".repeat(18).to_owned() + "\n";
    let attachment = "Content-Type: application/zip; name=bomb.zip\nContent-Transfer-Encoding: base64\n\n";
    let page = "Content-Type: text/html\n\n";
    for (name, message, expected) in [
        ("10,000 multiparts in each other", nested + "\nHerons.\n", Some("Herons.")),
        ("100,000 messages in each other", forwarded + "\nHerons.\n", None),
        (
            "an attachment of 100 MB",
            format!("{mixed}{attachment}{}--b--\n", encoded.repeat(1_400_000)),
            Some("bomb.zip"),
        ),
        ("a header of 10 MB", format!("{head}X-Long: {}\n\nHerons.\n", "x ".repeat(5 << 20)), Some("Herons.")),
        ("a million parts", format!("{mixed}{}", "\nducks\n--b\n".repeat(1_000_000)), Some("ducks")),
        ("a page without end", format!("{mixed}{page}{}", "<div>".repeat(200_000)), None),
    ] {
        let (answers, end) = read_bytes(Step::Extract(Format::Eml), message.as_bytes());
        println!("{name}: {:?}", end.as_ref().map_err(ToString::to_string));
        match (end, expected) {
            (Ok(_), expected) => {
                let [Answer::Extracted(read)] = &answers[..] else { panic!("{name}: one answer") };
                assert!(read.text.starts_with("# Ducks\n"), "{name}");
                assert!(expected.is_none_or(|words| read.text.contains(words)), "{name}");
            }
            (Err(error), Some(_)) => panic!("{name}: {error}"),
            (Err(error), None) => assert!(is_named(&error), "{name}: {error}"),
        }
    }
}

fn hostile_json_ends_named() {
    let records = "{\"name\": \"duck\", \"at\": [1, 2]},".repeat(500_000);
    let long_key = format!("{{\"{}\": [{}1]}}", "k".repeat(10 << 20), "\"v\",".repeat(1 << 20));
    let image = format!("\"image/png\": \"{}\"", "QUFB".repeat(20 << 20));
    let cell = format!("{{\"cell_type\": \"code\", \"source\": \"plot()\", \"outputs\": [{{\"data\": {{{image}}}}}]}}");
    let notebook = |cells: &str| format!("{{\"cells\": [{cells}], \"nbformat\": 4}}");
    for (name, format, bytes, expected) in [
        ("200,000 arrays in each other", Format::Json, "[".repeat(200_000) + &"]".repeat(200_000), None),
        ("half a million records", Format::Json, format!("[{records}{{}}]"), Some("name: duck; at: 1, 2")),
        ("a key of 10 MB", Format::Json, long_key, Some(": v, v")),
        ("a million keys in each other", Format::Json, "{\"a\":".repeat(1 << 20), None),
        ("a text of 100 MB", Format::Json, format!("[\"{}\"]", "ducks ".repeat(17 << 20)), Some("ducks ducks")),
        ("an image of 80 MB", Format::Ipynb, notebook(&cell), Some("plot()")),
        ("a notebook in a notebook", Format::Ipynb, "{\"cells\":[".repeat(100_000), None),
    ] {
        let (answers, end) = read_bytes(Step::Extract(format), bytes.as_bytes());
        println!("{name}: {:?}", end.as_ref().map_err(ToString::to_string));
        match (end, expected) {
            (Ok(usage), Some(words)) => {
                let [Answer::Extracted(read)] = &answers[..] else { panic!("{name}: one answer") };
                assert!(read.text.contains(words), "{name}");
                let most = (64 << 20) + 6 * read.text.len() as u64;
                assert!(usage.peak_bytes < most, "{name}: a value at a time: {usage:?}");
            }
            (Ok(_), None) => panic!("{name} is refused"),
            (Err(error), Some(_)) => panic!("{name}: {error}"),
            (Err(error), None) => {
                assert!(is_named(&error) || error.code() == "corrupt", "{name}: {error}");
            }
        }
    }
}

fn hostile_rtf_ends_named() {
    let body = |body: String| format!("{{\\rtf1\\ansi Ducks.\\par {body}");
    let fonts = |index: u32| format!("{{\\f{index}\\fcharset128 x;}}");
    for (name, bytes, is_read) in [
        ("200,000 groups in each other", body("{".repeat(200_000)), false),
        ("ten million cells", body("\\cell".repeat(10_000_000)), true),
        ("a million rows", body("\\trowd\\intbl a\\cell b\\cell\\row".repeat(1_000_000)), true),
        ("a picture of 100 MB", body(format!("{{\\pict {}}}", "00ff".repeat(25 << 20))), true),
        ("a million fonts", body(format!("{{\\fonttbl{}}}", (0..1_000_000).map(fonts).collect::<String>())), true),
        ("bytes that never end", body("\\bin2000000000 x".to_owned()), true),
        ("a paragraph of 130 MB", body("ducks ".repeat(23 << 20)), false),
    ] {
        let (answers, end) = read_bytes(Step::Extract(Format::Rtf), bytes.as_bytes());
        println!("{name}: {:?}", end.as_ref().map_err(ToString::to_string));
        match end {
            Ok(_) if is_read => {
                assert!(matches!(&answers[..], [Answer::Extracted(read)] if read.text.starts_with("Ducks.")), "{name}");
            }
            Ok(_) => panic!("{name} is refused"),
            Err(error) => assert!(!is_read && is_named(&error), "{name}: {error}"),
        }
    }
}

fn hostile_xml_ends_named() {
    let whole = |body: String| format!("<?xml version=\"1.0\"?><a><b>Ducks</b>{body}</a>");
    let laughs: String =
        (1..50).map(|level| format!("<!ENTITY l{level} \"{}\">", format!("&l{};", level - 1).repeat(10))).collect();
    let name = "n".repeat(1 << 20);
    let attributes: String = (0..1_000_000).map(|index| format!(" a{index}=\"v\"")).collect();
    for (case, bytes, is_read) in [
        ("200,000 elements in each other", whole("<c>".repeat(200_000)), false),
        ("entities of entities", format!("<!DOCTYPE a [{laughs}]><a><b>Ducks</b><c>&l49;</c></a>"), true),
        ("a million records", whole("<c id=\"1\"><d>x</d></c>".repeat(1_000_000)), true),
        ("a name of 1 MB", whole(format!("<{name}>{}</{name}>", "<d>x</d>".repeat(1_000_000))), true),
        ("a million attributes", whole(format!("<c{attributes}/>")), true),
        ("a million names", whole((0..1_000_000).map(|index| format!("<c{index}/>")).collect()), true),
        ("a million titles", whole("<c><title>x</title></c>".repeat(1_000_000)), true),
        ("a million tables", whole("<table><tr><td>x</td></tr></table>".repeat(1_000_000)), true),
        ("a text of 130 MB", whole("ducks ".repeat(23 << 20)), false),
    ] {
        let (answers, end) = read_bytes(Step::Extract(Format::Xml), bytes.as_bytes());
        println!("{case}: {:?}", end.as_ref().map_err(ToString::to_string));
        match end {
            Ok(_) if is_read => {
                assert!(matches!(&answers[..], [Answer::Extracted(read)] if read.text.contains("b: Ducks")), "{case}");
            }
            Ok(_) => panic!("{case} is refused"),
            Err(error) => assert!(!is_read && is_named(&error), "{case}: {error}"),
        }
    }
}

/// A package with these members, of which the first names the type.
fn package(mime: &str, members: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in [("mimetype", mime)].iter().chain(members) {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn hostile_packages_end_named() {
    let open = |body: String| {
        let text = format!("<d><office:body><office:text><text:p>Ducks</text:p>{body}</office:text></office:body></d>");
        package("application/vnd.oasis.opendocument.text", &[("content.xml", &text)])
    };
    let slides = |body: String| {
        let text = format!("<d><office:presentation>{body}</office:presentation></d>");
        package("application/vnd.oasis.opendocument.presentation", &[("content.xml", &text)])
    };
    let book = |page: &str, pages: usize| {
        let items: String =
            (0..pages).map(|at| format!("<item id=\"i{at}\" href=\"p{at}.html\" media-type=\"text/html\"/>")).collect();
        let order: String = (0..pages).map(|at| format!("<itemref idref=\"i{at}\"/>")).collect();
        let root = format!("<p><manifest>{items}</manifest><spine>{order}</spine></p>");
        let container = "<c><rootfile full-path=\"b.opf\"/></c>";
        let names: Vec<String> = (0..pages).map(|at| format!("p{at}.html")).collect();
        let mut members = vec![("META-INF/container.xml", container), ("b.opf", &root)];
        members.extend(names.iter().map(|name| (name.as_str(), page)));
        package("application/epub+zip", &members)
    };
    let cell = "<table:table-cell table:number-columns-repeated=\"2000000000\"><text:p>x</text:p></table:table-cell>";
    let row = format!("<table:table-row table:number-rows-repeated=\"1000000\">{cell}</table:table-row>");
    let many = |text: &str, count: usize| text.repeat(count);
    for (case, format, bytes, is_read) in [
        ("200,000 elements in each other", Format::Odt, open(many("<text:section>", 200_000)), false),
        ("blanks that unpack to 100 MB", Format::Odt, open(many(" ", 100 << 20)), false),
        (
            "cells that repeat two thousand million times",
            Format::Odt,
            open(format!("<table:table>{row}</table:table>")),
            true,
        ),
        (
            "tables without end",
            Format::Odt,
            open(many("<table:table><table:table-row/></table:table>", 300_000)),
            false,
        ),
        (
            "a million blanks in one element",
            Format::Odt,
            open("<text:p><text:s text:c=\"4000000000\"/>x</text:p>".to_owned()),
            true,
        ),
        ("a hundred thousand slides", Format::Odp, slides(many("<draw:page/>", 100_000)), true),
        ("more slides than headings", Format::Odp, slides(many("<draw:page/>", 100_001)), false),
        ("a page of 30 MB that is nothing", Format::Epub, book(&many(" ", 30 << 20), 1), false),
        ("ten thousand pages", Format::Epub, book("<p>Ducks</p>", 9_000), true),
        ("more pages than members", Format::Epub, book("<p>Ducks</p>", 10_001), false),
        ("elements in each other", Format::Epub, book(&many("<div>", 200_000), 1), false),
    ] {
        let (answers, end) = read_bytes(Step::Extract(format), &bytes);
        println!("{case}: {:?}", end.as_ref().map_err(ToString::to_string));
        match end {
            Ok(usage) => {
                assert!(is_read, "{case} is refused");
                assert!(matches!(&answers[..], [Answer::Extracted(read)] if read.text.len() < 16 << 20), "{case}");
                assert!(usage.peak_bytes < 256 << 20, "{case}: {usage:?}");
            }
            Err(error) => assert!(!is_read && (is_named(&error) || error.is_permanent()), "{case}: {error}"),
        }
    }
}

fn hostile_files_cost_little() {
    let made = repository().join("../shared/corpus/made");
    let Ok(folder) = std::fs::read_dir(&made) else {
        println!("left out: the corpus is not here, so no hostile file was read");
        return;
    };
    // These must be refused with the given limit; unlisted files must be answered, or refused as corrupt or
    // unsupported.
    let by_name = [
        ("bomb_document_xml.docx", Limit::ZipRatio),
        ("deep_nesting.docx", Limit::XmlDepth),
        ("pdf_stream_bomb.pdf", Limit::ZipRatio),
        ("pdf_double_flate_bomb.pdf", Limit::ZipRatio),
    ];
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let ask = |step| ask(&Request::new(step, Limits::default()), &file);
        let (probed, _) = ask(Step::Probe).unwrap();
        let Answer::Probed { detection, patterns, .. } = probed else { panic!("{name}: a probe's answer") };
        let extracted = detection.format.map(|format| ask(Step::Extract(format)));
        let error = extracted.and_then(Result::err).or(patterns.err());
        let outcome = error.as_ref().map_or("read".to_owned(), ToString::to_string);
        let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() * 1024;
        println!("{name}: {outcome}; largest child so far {} MB", peak >> 20);
        if let Some((_, limit)) = by_name.iter().find(|(known, _)| *known == name) {
            assert_eq!(error.as_ref().and_then(FormatError::limit), Some(*limit), "{name}: {outcome}");
        } else if let Some(error) = &error {
            assert!(["corrupt", "unsupported", "unknown_format"].contains(&error.code()), "{name}: {outcome}");
        }
        assert!(error.is_none_or(|error| error.is_permanent()), "{name}");
        assert!(peak < MOST_BYTES, "{name}: {} MB", peak >> 20);
    }
    std::io::stdout().flush().unwrap();
}
