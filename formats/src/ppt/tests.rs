use super::*;
use crate::{PageKind, Pattern, Secret, binary_lock::tests::locked_with, detect};
use cfb::CompoundFile;
use std::io::{Cursor, Write};

/// A record with a body.
fn record(kind: u16, instance: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = [(instance << 4) | 0xF, kind].map(u16::to_le_bytes).concat();
    bytes.extend((body.len() as u32).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A record with numbers.
fn atom(kind: u16, numbers: &[u32]) -> Vec<u8> {
    record(kind, 0, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
}

/// The records of a text, whose characters have two bytes if one needs them.
fn text(of: u32, text: &str) -> Vec<u8> {
    let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let characters = match text.chars().all(|character| character < '\u{100}') {
        true => record(kind::NARROW, 0, &text.chars().map(|character| character as u8).collect::<Vec<u8>>()),
        false => record(kind::WIDE, 0, &wide),
    };
    [atom(kind::TEXT, &[of]), characters].concat()
}

/// A slide or a page of notes with the text boxes of its shapes.
fn page(of: u16, atoms: &[Vec<u8>], boxes: &[Vec<u8>]) -> Vec<u8> {
    let shapes: Vec<u8> = boxes.iter().flat_map(|text| record(0xF004, 0, &record(kind::TEXT_BOX, 0, text))).collect();
    let drawing = record(kind::DRAWING, 0, &record(0xF002, 0, &record(0xF003, 0, &shapes)));
    record(of, 0, &[atoms.concat(), drawing].concat())
}

/// A slide in a list, by the number of its object and its own.
fn entry(object: u32, slide: u32, texts: &[Vec<u8>]) -> Vec<u8> {
    [atom(kind::LISTED, &[object, 0, 0, slide, 0]), texts.concat()].concat()
}

fn document(slides: &[Vec<u8>], notes: &[Vec<u8>]) -> Vec<u8> {
    let lists = [
        record(kind::LIST, 1, &entry(99, 99, &[text(0, "A master")])),
        record(kind::LIST, SLIDES, &slides.concat()),
        record(kind::LIST, NOTES, &notes.concat()),
    ];
    record(kind::DOCUMENT, 0, &lists.concat())
}

/// A presentation that a test makes.
#[derive(Default)]
struct Made {
    stream: Vec<u8>,
    last: u32,
}

impl Made {
    /// Saves objects by their numbers; that of the document is 1.
    fn save(&mut self, objects: &[(u32, Vec<u8>)]) -> &mut Self {
        let mut directory = Vec::new();
        for (number, bytes) in objects {
            directory.extend([(1 << 20) | *number, self.stream.len() as u32]);
            self.stream.extend(bytes);
        }
        let directory_at = self.stream.len() as u32;
        self.stream.extend(atom(kind::DIRECTORY, &directory));
        let edit = atom(kind::EDIT, &[0, 0, self.last, directory_at, 1, 0, 0]);
        self.last = self.stream.len() as u32;
        self.stream.extend(edit);
        self
    }

    fn bytes(&self, mark: u32, at: &str) -> Vec<u8> {
        let user = atom(0x0FF6, &[0x14, mark, self.last, 0, 0]);
        let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        if !at.is_empty() {
            file.create_storage(at).unwrap();
            file.create_stream("/PowerPoint Document").unwrap().write_all(b"of an older version").unwrap();
        }
        file.create_stream(format!("{at}/Current User")).unwrap().write_all(&user).unwrap();
        file.create_stream(format!("{at}/PowerPoint Document")).unwrap().write_all(&self.stream).unwrap();
        file.flush().unwrap();
        file.into_inner().into_inner()
    }
}

const PLAIN: u32 = 0xE391_C05F;

/// Two slides, of which the second one was saved twice and has notes.
fn ponds() -> Made {
    let outline = [text(0, "The pond"), text(1, "Seventy ducks\rof Łódź"), text(4, "On no shape")];
    let shown = |listed: u32| atom(kind::LISTED_TEXT, &[listed]);
    let number = [text(4, "*"), atom(0x0FD8, &[0])].concat();
    let first = page(kind::SLIDE, &[], &[text(4, "Above\u{B}all"), shown(1), shown(0), shown(9), number]);
    let show = atom(kind::SHOW, &[0, 0, 4 << 16, 0]);
    let second = page(kind::SLIDE, &[show], &[text(4, "A line of text"), text(5, "Another")]);
    let notes = page(kind::NOTES, &[atom(kind::NOTES_ATOM, &[257])], &[text(4, "Header"), text(2, "Say hello")]);
    let document = document(&[entry(2, 256, &outline), entry(3, 257, &[])], &[entry(4, 0, &[])]);
    let mut made = Made::default();
    made.save(&[(1, document), (2, first), (3, page(kind::SLIDE, &[], &[text(0, "Old")])), (4, notes)]);
    made.save(&[(3, second)]);
    made
}

const PONDS: &str = "# The pond\n\nAbove\nall\n\n- Seventy ducks\n- of Łódź\n\nOn no shape\n\n\
                     # A line of text\n\nAnother\n\n## Notes\n\nSay hello";

#[test]
fn slides_are_sections_in_their_order_with_their_notes() {
    let bytes = ponds().bytes(PLAIN, "");
    assert_eq!(detect(&mut Cursor::new(&bytes)).unwrap().format, Some(Format::Ppt));
    let read = extract(Cursor::new(&bytes), &Limits::default()).unwrap();
    assert_eq!(read.text, PONDS);
    assert_eq!((read.pages.len(), read.page_kind), (2, PageKind::Slide));
    assert_eq!((&read.facts["ppt.slides"], &read.facts["promoted_title_count"]), (&2.into(), &1.into()));
    assert_eq!(read.facts["ppt.hidden_slides"], serde_json::json!([2]));
    let patterns = probe(Cursor::new(&bytes), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::HasTextLayer) && patterns.holds(Pattern::HasHeadings));
    assert!(patterns.holds(Pattern::IsLegacyBinary) && !patterns.holds(Pattern::IsEncrypted));
}

#[test]
fn deleted_shapes_and_groups_show_nothing() {
    let shape = |flags: u32, of: u32, shown: &str| {
        let text = record(kind::TEXT_BOX, 0, &text(of, shown));
        record(0xF004, 0, &[atom(0xF009, &[0, 0, 0, 0]), atom(0xF00A, &[1, flags]), text].concat())
    };
    let listed = record(kind::TEXT_BOX, 0, &atom(kind::LISTED_TEXT, &[1]));
    let shapes = [
        shape(0xA00, 0, "Kept"),
        shape(0xA08, 1, "Deleted"),
        record(0xF003, 0, &[shape(0x9, 4, ""), shape(0x2, 4, "In a deleted group")].concat()),
        record(0xF004, 0, &[atom(0xF00A, &[2, 8]), listed].concat()),
        record(0xF003, 0, &[shape(0x1, 4, ""), shape(0x2, 4, "In a group")].concat()),
    ];
    let slide = record(kind::SLIDE, 0, &record(kind::DRAWING, 0, &record(0xF002, 0, &shapes.concat())));
    let outline = [text(4, "On no shape"), text(4, "On a deleted shape")];
    let mut made = Made::default();
    made.save(&[(1, document(&[entry(2, 256, &outline)], &[])), (2, slide)]);
    let read = extract(Cursor::new(made.bytes(PLAIN, "")), &Limits::default()).unwrap();
    assert_eq!(read.text, "# Kept\n\nIn a group\n\nOn no shape");
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let long = |number: u32| number.to_le_bytes().to_vec();
    let short = |number: u16| number.to_le_bytes().to_vec();
    // A bullet, a color and a tab stop are fields of paragraphs before the runs of characters.
    let paragraphs = [long(24), short(0), long(0x10_00A1), short(1), short(8), long(7), short(1), long(9)].concat();
    let run = |count: u32, position: u16| {
        [long(count), long(0x8_0001 | 1 << 17), short(1), short(18), short(position)].concat()
    };
    let plain = |count: u32| [long(count), long(0)].concat();
    let empty = [paragraphs.clone(), plain(0), plain(12), run(1, 30), plain(9)].concat();
    let looks =
        [paragraphs, plain(7), run(1, 30), plain(10), run(1, 30), plain(3), run(1, 30u16.wrapping_neg()), plain(1)]
            .concat();
    let shown = "In 20193 it was 106\u{B} H2";
    let with = |text: Vec<u8>, looks: &[u8]| [text, record(kind::LOOKS, 0, looks)].concat();
    let texts = [
        text(0, "Years"),
        with(text(1, shown), &looks),
        with(text(4, "Damaged 20193"), &looks[..40]),
        with(text(4, "Nothing 20193"), &empty),
    ];
    let slide = page(kind::SLIDE, &[], &texts);
    let mut made = Made::default();
    made.save(&[(1, document(&[entry(2, 256, &[])], &[])), (2, slide)]);
    let read = extract(Cursor::new(made.bytes(PLAIN, "")), &Limits::default()).unwrap();
    assert_eq!(read.text, "# Years\n\n- In 2019^3 it was 10^6 H2\n\nDamaged 20193\n\nNothing 20193");
}

#[test]
fn a_presentation_lists_no_more_slides_than_a_file_may_have_pages() {
    let slides: Vec<Vec<u8>> = (0..20).map(|number| entry(9, number, &[])).collect();
    let mut made = Made::default();
    made.save(&[(1, document(&slides, &[]))]);
    let limits = Limits { pages: 19, ..Limits::default() };
    let error = extract(Cursor::new(made.bytes(PLAIN, "")), &limits).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::Pages));
}

#[test]
fn a_presentation_for_two_versions_and_one_whose_user_is_lost_are_read() {
    let mut made = ponds();
    let dual = made.bytes(PLAIN, DUAL);
    made.last = 7;
    let lost = made.bytes(PLAIN, "");
    for bytes in [dual, lost] {
        assert_eq!(extract(Cursor::new(bytes), &Limits::default()).unwrap().text, PONDS);
    }
}

#[test]
fn closed_presentations_are_refused_by_name() {
    let bytes = ponds().bytes(ENCRYPTED, "");
    let patterns = probe(Cursor::new(&bytes), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::IsEncrypted) && patterns.holds(Pattern::IsLegacyBinary));
    let error = extract(Cursor::new(&bytes), &Limits::default()).unwrap_err();
    assert_eq!(error.code(), "legacy_powerpoint");
    assert!(error.to_string().contains("password") && error.to_string().contains("pptx"), "{error}");
    assert_eq!(crate::refusal(Format::Ppt, Cursor::new(&bytes), &patterns), Some(error));
    let older = Made { stream: b"of an older version".to_vec(), last: 0 }.bytes(PLAIN, "");
    let error = extract(Cursor::new(&older), &Limits::default()).unwrap_err();
    assert!(error.code() == "legacy_powerpoint" && error.to_string().contains("older than Office 97"), "{error}");
}

#[test]
fn objects_that_many_slides_claim_do_not_multiply_the_work() {
    let slide = page(kind::SLIDE, &[], &[text(0, "Ducks"), text(1, &"quack ".repeat(1000))]);
    let slides: Vec<Vec<u8>> = (0..1000).map(|number| entry(2, number, &[])).collect();
    let mut made = Made::default();
    made.save(&[(1, document(&slides, &[])), (2, slide)]);
    let error = extract(Cursor::new(made.bytes(PLAIN, "")), &Limits::default()).unwrap_err();
    assert_eq!(error.code(), "corrupt", "no setting allows it");

    let mut made = Made::default();
    made.save(&[(1, document(&[entry(2, 256, &[]), entry(3, 257, &[])], &[])), (2, page(kind::SLIDE, &[], &[]))]);
    let read = extract(Cursor::new(made.bytes(PLAIN, "")), &Limits::default()).unwrap();
    assert_eq!((read.text.as_str(), &read.facts["ppt.missing_slides"]), ("# Slide 1", &serde_json::json!([2])));
}

#[test]
fn shapes_nest_no_deeper_than_allowed() {
    let mut group = Vec::new();
    for _ in 0..300 {
        group = record(0xF003, 0, &group);
    }
    let mut made = Made::default();
    let slide = record(kind::SLIDE, 0, &record(kind::DRAWING, 0, &group));
    made.save(&[(1, document(&[entry(2, 256, &[])], &[])), (2, slide)]);
    let error = extract(Cursor::new(made.bytes(PLAIN, "")), &Limits::default()).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::XmlDepth));
}

#[test]
fn damage_anywhere_is_survived() {
    let bytes = ponds().bytes(PLAIN, "");
    for at in (0..bytes.len()).step_by(3) {
        for value in [0, 0xFF] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            if let Err(error) = extract(Cursor::new(&bytes), &Limits::default()) {
                assert!(error.is_permanent(), "{at}: {error}");
            }
        }
    }
}

/// A presentation of one slide that a password locks. Its directory also gives these numbers to the bytes of its document.
fn locked(password: &str, also: &[u32]) -> Vec<u8> {
    let (keys, description) = locked_with(password, Some(128));
    let slide = page(kind::SLIDE, &[], &[text(0, "The pond"), text(1, "Seventy ducks")]);
    let mut made = Made::default();
    let mut directory: Vec<u32> = also.iter().flat_map(|number| [(1 << 20) | *number, 0]).collect();
    for (number, mut bytes) in [(1, document(&[entry(2, 256, &[])], &[])), (2, slide)] {
        directory.extend([(1 << 20) | number, made.stream.len() as u32]);
        keys.cipher(number).apply(&mut bytes);
        made.stream.extend(bytes);
    }
    directory.extend([(1 << 20) | 9, made.stream.len() as u32]);
    made.stream.extend(record(kind::LOCK, 0, &description));
    let directory_at = made.stream.len() as u32;
    made.stream.extend(atom(kind::DIRECTORY, &directory));
    made.last = made.stream.len() as u32;
    made.stream.extend(atom(kind::EDIT, &[0, 0, 0, directory_at, 1, 0, 0, 9]));
    made.bytes(ENCRYPTED, "")
}

#[test]
fn a_password_opens_a_presentation_object_by_object() {
    let bytes = locked("Wehr über Erlen", &[]);
    let limits = Limits::default();
    let password = Secret::new("Wehr über Erlen");
    let access = Access { password: Some(&password), ..Access::from(&limits) };
    let read = extract(Cursor::new(&bytes), access).unwrap();
    assert_eq!(read.text, "# The pond\n\n- Seventy ducks");
    let patterns = probe(Cursor::new(&bytes), access).unwrap();
    assert!(patterns.holds(Pattern::IsEncrypted) && patterns.holds(Pattern::HasTextLayer));
    let refused = FormatError::Encrypted { format: Format::Ppt };
    let closed = probe(Cursor::new(&bytes), &limits).unwrap();
    assert!(closed.holds(Pattern::IsEncrypted) && closed.get(Pattern::HasTextLayer).is_none());
    assert_eq!(crate::refusal(Format::Ppt, Cursor::new(&bytes), &closed), Some(refused.clone()));
    let wrong = Secret::new("heron");
    let access = Access { password: Some(&wrong), ..Access::from(&limits) };
    assert_eq!(probe(Cursor::new(&bytes), access).unwrap_err(), refused);
}

#[test]
fn a_presentation_that_is_protected_from_changes_alone_is_read_as_others_are() {
    let bytes = locked("/01Hannes Ruescher/01", &[]);
    let limits = Limits::default();
    let patterns = probe(Cursor::new(&bytes), &limits).unwrap();
    assert!(patterns.holds(Pattern::HasTextLayer) && !patterns.holds(Pattern::IsEncrypted));
    assert_eq!(extract(Cursor::new(&bytes), &limits).unwrap().text, "# The pond\n\n- Seventy ducks");
}

#[test]
fn bytes_that_several_objects_of_a_locked_presentation_claim_are_opened_once() {
    let bytes = locked("Wehr über Erlen", &[5, 7, 0xF_FFFF]);
    let (limits, password) = (Limits::default(), Secret::new("Wehr über Erlen"));
    let access = Access { password: Some(&password), ..Access::from(&limits) };
    assert_eq!(extract(Cursor::new(&bytes), access).unwrap().text, "# The pond\n\n- Seventy ducks");
}

#[test]
fn damage_anywhere_of_a_locked_presentation_is_survived() {
    let whole = locked("heron", &[]);
    let (limits, password) = (Limits::default(), Secret::new("heron"));
    let access = Access { password: Some(&password), ..Access::from(&limits) };
    for at in (0..whole.len()).step_by(5) {
        for value in [0, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Err(error) = extract(Cursor::new(&bytes), access) {
                assert!(error.is_permanent(), "{at}: {error}");
            }
        }
    }
}
