//! Detects, probes and extracts real files that were damaged at random. None may crash a reader, and what is read must
//! be consistent. A failure names the file and its damage, and is kept in `mutations.regressions`, which is tried first
//! from then on.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod legacy;

use legacy::{old_document, old_presentation};
use proptest::{prelude::*, sample::Index, test_runner::FileFailurePersistence};
use std::{
    fmt, fs,
    io::{Cursor, Read, Write},
    path::Path,
    sync::{Arc, LazyLock},
};
use svc_formats::{
    Format, ImagePart, Limits, MemberPart, archive, detect, extract, images, members, probe, refusal, sections, tables,
    xlsx,
};
use zip::{ZipArchive, ZipWriter, write::SimpleFileOptions};

/// Larger files take long and show no more.
const LARGEST: u64 = 120_000;

#[derive(Clone)]
struct Seed {
    name: String,
    bytes: Arc<Vec<u8>>,
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

static SEEDS: LazyLock<Vec<Seed>> = LazyLock::new(|| {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let corpus = repository.join("../shared/corpus");
    if !corpus.is_dir() {
        println!("left out: the corpus is not here, so only the samples are damaged");
    }
    let folders = ["pdf", "docx", "pptx", "xlsx", "ole2", "made"].map(|folder| corpus.join(folder));
    let text = "The pond\rDucks\u{7}70\u{7}\u{7}See \u{13}REF\u{14}the weir\u{15}\u{1}\u{2}.\r";
    let mut seeds = vec![
        Seed { name: "made.msg".to_owned(), bytes: Arc::new(message()) },
        Seed { name: "made.doc".to_owned(), bytes: Arc::new(old_document(text)) },
        Seed { name: "made.docx".to_owned(), bytes: Arc::new(charted()) },
        Seed { name: "made.ppt".to_owned(), bytes: Arc::new(old_presentation("The pond", "Ducks\rHerons")) },
        Seed { name: "made.tiff".to_owned(), bytes: Arc::new(pictures()) },
    ];
    for folder in ["tests/samples", "formats/tests/files"].map(|folder| repository.join(folder)).iter().chain(&folders)
    {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_file() && path.metadata().unwrap().len() <= LARGEST {
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                seeds.push(Seed { name, bytes: Arc::new(fs::read(&path).unwrap()) });
            }
        }
    }
    seeds.sort_by(|a, b| a.name.cmp(&b.name));
    seeds
});

/// A message of Outlook with a body in two forms, a recipient, an attachment and a message within it.
fn message() -> Vec<u8> {
    const RECIPIENT: &str = "/__recip_version1.0_#00000000";
    const ATTACHMENT: &str = "/__attach_version1.0_#00000000";
    const FORWARDED: &str = "/__attach_version1.0_#00000001";
    const WITHIN: &str = "/__attach_version1.0_#00000001/__substg1.0_3701000D";
    let mut message = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    for storage in [RECIPIENT, ATTACHMENT, FORWARDED, WITHIN] {
        message.create_storage(storage).unwrap();
    }
    let mut put = |path: String, bytes: &[u8]| message.create_stream(path).unwrap().write_all(bytes).unwrap();
    for (at, bytes) in [("", 64), (RECIPIENT, 24), (ATTACHMENT, 24), (FORWARDED, 24), (WITHIN, 40)] {
        put(format!("{at}/__properties_version1.0"), &vec![0; bytes]);
    }
    for (at, property, text) in [
        ("", "0037001E", "Ducks"),
        ("", "1000001E", "Seventy ducks."),
        ("", "10130102", "<h1>Ducks</h1><p>Seventy ducks were counted at the mill pond in the morning."),
        (RECIPIENT, "39FE001E", "ben@example.org"),
        (ATTACHMENT, "3707001E", "ducks.txt"),
        (ATTACHMENT, "37010102", &"ducks ".repeat(1000)),
        (WITHIN, "0037001E", "Herons"),
        (WITHIN, "10090102", "12345678LZFu1234\0{\\rtf1 H\0erons.} "),
    ] {
        put(format!("{at}/__substg1.0_{property}"), text.as_bytes());
    }
    message.flush().unwrap();
    message.into_inner().into_inner()
}

/// A document of Word with a chart, whose first series has days within years and whose second one has no axis of its own.
fn charted() -> Vec<u8> {
    let related = |kind: &str, target: &str| {
        format!(r#"<Relationships><Relationship Id="r" Type="{kind}" Target="{target}"/></Relationships>"#)
    };
    let points = |first: &str, second: &str| {
        format!(r#"<pt idx="0"><v>{first}</v></pt><pt idx="1" formatCode="0.0"><v>{second}</v></pt>"#)
    };
    let days = format!("<numCache><formatCode>d/m/yyyy</formatCode>{}</numCache>", points("44197", "44198"));
    let (inner, outer) = (points("Q1", "Q2"), points("2024", ""));
    let levels = format!("<multiLvlStrCache><lvl>{inner}</lvl><lvl>{outer}</lvl></multiLvlStrCache>");
    let series = |axis: &str, values: &str| {
        format!("<ser><tx><v>Ducks</v></tx>{axis}<val><numLit>{values}</numLit></val></ser>")
    };
    let plots = [
        series(&format!("<cat><multiLvlStrRef>{levels}</multiLvlStrRef></cat>"), &points("8", "1.5E3")),
        series("", &points("7", "#N/A")),
        series(&format!("<xVal><numRef>{days}</numRef></xVal>"), &points("6", "5")),
    ];
    let plots = plots.concat();
    let chart = format!(
        "<chartSpace><date1904/><chart><title><t>Ponds</t></title><plotArea><barChart>{plots}</barChart></plotArea></chart></chartSpace>"
    );
    let main = r#"<document><body><p><r><drawing><docPr descr="Bars"/><chart id="r"/></drawing></r></p><p><r><t>Figure 1</t></r></p></body></document>"#;
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in [
        ("_rels/.rels", related("rel/officeDocument", "word/document.xml")),
        ("word/document.xml", main.to_owned()),
        ("word/_rels/document.xml.rels", related("rel/chart", "charts/chart1.xml")),
        ("word/charts/chart1.xml", chart),
    ] {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The heads of two pictures in a TIFF.
fn pictures() -> Vec<u8> {
    let directory = b"\x02\0\0\x01\x04\0\x01\0\0\0\x80\x02\0\0\x01\x01\x04\0\x01\0\0\0\xE0\x01\0\0";
    [&b"II*\0\x08\0\0\0"[..], directory, &38u32.to_le_bytes(), directory, &[0; 4]].concat()
}

/// Damage to bytes.
#[derive(Debug, Clone)]
enum Damage {
    Flip {
        at: Index,
        bit: u8,
    },
    Set {
        at: Index,
        value: u8,
    },
    Cut {
        at: Index,
    },
    Drop {
        at: Index,
        length: usize,
    },
    Repeat {
        at: Index,
        length: usize,
        times: usize,
    },
    /// Inserts bytes of another file in the middle of this one.
    Splice {
        other: Index,
        from: Index,
        length: usize,
        at: Index,
    },
    /// A number, as in XML attributes and PDF objects, becomes another.
    Number {
        at: Index,
        value: &'static str,
    },
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    let number =
        prop::sample::select(vec!["0", "-1", "1", "65536", "4294967295", "99999999999999999999", "1e308", "x"]);
    prop_oneof![
        (at(), 0..8u8).prop_map(|(at, bit)| Damage::Flip { at, bit }),
        (at(), prop::sample::select(vec![0, 1, 0x7F, 0x80, 0xFF, b'<', b'"', b'&', b'/']))
            .prop_map(|(at, value)| Damage::Set { at, value }),
        at().prop_map(|at| Damage::Cut { at }),
        (at(), 1..200usize).prop_map(|(at, length)| Damage::Drop { at, length }),
        (at(), 1..200usize, 2..50usize).prop_map(|(at, length, times)| Damage::Repeat { at, length, times }),
        (at(), at(), 1..2000usize, at()).prop_map(|(other, from, length, at)| Damage::Splice {
            other,
            from,
            length,
            at
        }),
        (at(), number).prop_map(|(at, value)| Damage::Number { at, value }),
    ]
}

impl Damage {
    fn done_to(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let range = |at: &Index, length: usize, bytes: &[u8]| {
            let at = at.index(bytes.len());
            at..bytes.len().min(at + length)
        };
        match self {
            Self::Flip { at, bit } => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Self::Set { at, value } => {
                let at = at.index(bytes.len());
                bytes[at] = *value;
            }
            Self::Cut { at } => bytes.truncate(at.index(bytes.len())),
            Self::Drop { at, length } => {
                bytes.drain(range(at, *length, bytes));
            }
            Self::Repeat { at, length, times } => {
                let range = range(at, *length, bytes);
                let repeated = bytes[range.clone()].repeat(*times);
                bytes.splice(range, repeated);
            }
            Self::Splice { other, from, length, at } => {
                let other = &SEEDS[other.index(SEEDS.len())].bytes;
                if !other.is_empty() {
                    let piece = other[range(from, *length, other)].to_vec();
                    let at = at.index(bytes.len());
                    bytes.splice(at..at, piece);
                }
            }
            Self::Number { at, value } => {
                let at = at.index(bytes.len());
                let Some(start) = bytes[at..].iter().position(u8::is_ascii_digit).map(|found| at + found) else {
                    return;
                };
                let end = bytes[start..]
                    .iter()
                    .position(|byte| !byte.is_ascii_digit())
                    .map_or(bytes.len(), |length| start + length);
                bytes.splice(start..end, value.bytes());
            }
        }
    }
}

/// The package with one member damaged and everything else, including checksums, correct.
fn with_damaged_member(package: &[u8], member: &Index, damages: &[Damage]) -> Option<Vec<u8>> {
    let mut archive = ZipArchive::new(Cursor::new(package)).ok()?;
    let damaged = member.index(archive.len().max(1));
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).ok()?;
        let name = file.name().ok()?.to_string();
        let mut bytes = Vec::new();
        file.by_ref().take(4 << 20).read_to_end(&mut bytes).ok()?;
        if index == damaged {
            damages.iter().for_each(|damage| damage.done_to(&mut bytes));
        }
        writer.start_file(name, SimpleFileOptions::default()).ok()?;
        writer.write_all(&bytes).ok()?;
    }
    Some(writer.finish().ok()?.into_inner())
}

fn limits() -> Limits {
    Limits {
        pages: 50,
        zip_members: 500,
        unpacked_bytes: 16 << 20,
        text_bytes: 8 << 20,
        headings: 5000,
        ..Limits::default()
    }
}

/// Reads the members of a container: each begins before it gives bytes, and ends once.
fn read_members(format: Format, bytes: &[u8], limits: &Limits) {
    let mut is_open = false;
    let _ = members(format, Cursor::new(bytes), limits, &mut |part| {
        match part {
            MemberPart::Begin(_) => assert!(!std::mem::replace(&mut is_open, true)),
            MemberPart::Bytes(_) => assert!(is_open),
            MemberPart::End => assert!(std::mem::take(&mut is_open)),
            MemberPart::LeftOut { .. } => is_open = false,
        }
        Ok(())
    });
}

/// Reads the pictures of a file: each begins before it gives bytes, and ends once.
fn read_images(format: Format, bytes: &[u8], limits: &Limits) {
    let mut is_open = false;
    let _ = images(format, Cursor::new(bytes), limits, &mut |part| {
        match part {
            ImagePart::Begin(_) => assert!(!std::mem::replace(&mut is_open, true)),
            ImagePart::Bytes(_) => assert!(is_open),
            ImagePart::End => assert!(std::mem::take(&mut is_open)),
            ImagePart::LeftOut { .. } => assert!(!is_open),
            ImagePart::Chart(chart) => {
                let rows = &chart.table.rows;
                assert!(!is_open && rows.iter().all(|row| row.len() == rows[0].len()), "rows are equally wide");
                assert!(rows.iter().flatten().all(|cell| !cell.contains('\0')));
            }
        }
        Ok(())
    });
}

/// Detects, probes and extracts the bytes; whatever they hold must be consistent.
fn read(bytes: &[u8]) {
    let limits = limits();
    let Some(format) = detect(&mut Cursor::new(bytes)).unwrap().format else { return };
    if let Ok(patterns) = probe(format, Cursor::new(bytes), &limits) {
        refusal(format, Cursor::new(bytes), &patterns);
    }
    if format == Format::Zip {
        archive(Cursor::new(bytes)).unwrap();
    }
    if format.has_members() {
        read_members(format, bytes, &limits);
    }
    if format.has_images() {
        read_images(format, bytes, &limits);
    }
    // Any text may be opened as a table.
    if format.has_sheets() || format == Format::Text {
        sheets(bytes, &limits);
    }
    match extract(format, Cursor::new(bytes), &limits) {
        Ok(read) => {
            assert!(!read.text.contains('\0'));
            assert!(read.pages.iter().all(|page| read.text.get(page.start..page.end).is_some()), "pages are slices");
            assert!(
                read.headings.iter().all(|heading| read.text.is_char_boundary(heading.start)),
                "headings begin in it"
            );
            assert!(sections(&read).iter().all(|section| read.text.get(section.start..section.end).is_some()));
            for table in tables(&read).tables {
                assert!(table.ranges.is_sorted_by(|one, next| one.end <= next.start), "{:?}", table.ranges);
                assert!(table.ranges.iter().all(|range| read.text.get(range.clone()).is_some()), "tables are slices");
                assert!(table.rows.iter().all(|row| row.len() == table.rows[0].len()), "rows are equally wide");
            }
        }
        // Bytes in memory read the same way each time.
        Err(error) => assert!(error.is_permanent(), "{error}"),
    }
}

/// Reads the first sheets of a workbook in every way that the service does.
fn sheets(bytes: &[u8], limits: &Limits) {
    let Ok(workbook) = xlsx::workbook(Cursor::new(bytes), limits) else { return };
    xlsx::shared_strings(Cursor::new(bytes), limits, &mut |_| Ok(())).ok();
    let source = || xlsx::Source::from(Cursor::new(bytes));
    for index in (0..).take(workbook.sheets.len().min(3)) {
        xlsx::profile_sheet(source(), index, true, limits).ok();
        xlsx::records(source(), index, true, limits, &mut |_| Ok(())).ok();
        let range = "A1:Z200".parse().unwrap();
        if let Ok(read) = xlsx::cells(source(), index, range, limits) {
            assert!(read.rows.is_sorted_by(|one, next| one.row < next.row), "rows go from top to bottom");
            assert!(
                read.rows.iter().flat_map(|row| &row.cells).all(|cell| range.contains(cell.cell)),
                "within the range"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn damaged_files_bring_no_reader_down(
        seed in prop::sample::select(SEEDS.clone()),
        damages in prop::collection::vec(damage(), 1..6),
    ) {
        let mut bytes = seed.bytes.to_vec();
        damages.iter().for_each(|damage| damage.done_to(&mut bytes));
        read(&bytes);
    }

    #[test]
    fn damaged_parts_of_packages_bring_no_reader_down(
        seed in prop::sample::select(SEEDS.iter().filter(|seed| seed.bytes.starts_with(b"PK")).cloned().collect::<Vec<_>>()),
        member in any::<Index>(),
        damages in prop::collection::vec(damage(), 1..6),
    ) {
        if let Some(bytes) = with_damaged_member(&seed.bytes, &member, &damages) {
            read(&bytes);
        }
    }
}
