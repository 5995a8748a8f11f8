use super::*;
use crate::{Limits, Pattern, Secret, binary_lock::tests::locked_with, detect};
use cfb::CompoundFile;
use std::io::{Cursor, Write};

/// Where the text of a made document begins: after the header, and before the pages of properties.
const TEXT: usize = 0x800;
const PAGES: usize = 0x8000;

/// A document that a test makes, of paragraphs, each with the number of its style and its changes.
#[derive(Default)]
struct Made {
    /// The bytes of the text: narrow ones, or such pairs.
    text: Vec<u8>,
    is_wide: bool,
    paragraphs: Vec<(usize, u16, Vec<u8>)>,
    /// Runs of characters by their end, with their changes.
    runs: Vec<(usize, Vec<u8>)>,
    /// How many characters each story behind the main text has.
    behind: [u32; 7],
    footnotes: Vec<(u32, u32)>,
    fonts: Vec<&'static str>,
    flags: u16,
    /// What the only piece says of its characters, and the list of changes that it may name.
    piece: u16,
    list: Vec<u8>,
}

impl Made {
    /// A paragraph with the character that ends it.
    fn paragraph(&mut self, text: &str, style: u16, changes: &[u8]) -> &mut Self {
        self.run(text, &[]);
        self.paragraphs.push((self.text.len(), style, changes.to_vec()));
        self
    }

    /// Characters that look otherwise.
    fn run(&mut self, text: &str, changes: &[u8]) -> &mut Self {
        for unit in text.encode_utf16() {
            match self.is_wide {
                true => self.text.extend(unit.to_le_bytes()),
                false => self.text.push(unit as u8),
            }
        }
        self.runs.push((self.text.len(), changes.to_vec()));
        self
    }

    fn count(&self) -> u32 {
        (self.text.len() / if self.is_wide { 2 } else { 1 }) as u32
    }

    fn bytes(&self) -> Vec<u8> {
        let mut tables = vec![0; 256];
        let mut main = vec![0; TEXT];
        main[..2].copy_from_slice(&0xA5ECu16.to_le_bytes());
        main[2..4].copy_from_slice(&0xC1u16.to_le_bytes());
        main[10..12].copy_from_slice(&(self.flags | 0x0200).to_le_bytes());
        let mut counts = self.behind;
        counts[0] = self.count() - self.behind.iter().sum::<u32>();
        for (index, count) in counts.iter().enumerate() {
            main[0x4C + index * 4..][..4].copy_from_slice(&count.to_le_bytes());
        }
        main.extend(&self.text);
        main.resize(PAGES, 0);
        let mut part = |main: &mut Vec<u8>, number: usize, bytes: &[u8]| {
            main[0x9A + number * 8..][..4].copy_from_slice(&(tables.len() as u32).to_le_bytes());
            main[0x9E + number * 8..][..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
            tables.extend(bytes);
        };

        let place = if self.is_wide { TEXT as u32 } else { (TEXT as u32 * 2) | 0x4000_0000 };
        let mut pieces = vec![1, 2, 0, 9, 9, 1, self.list.len() as u8, 0];
        pieces.extend(&self.list);
        pieces.extend([2, 16, 0, 0, 0]);
        pieces.extend([0, self.count()].map(u32::to_le_bytes).concat());
        pieces.extend([0, 0]);
        pieces.extend(place.to_le_bytes());
        pieces.extend(self.piece.to_le_bytes());
        part(&mut main, 33, &pieces);

        let paragraphs = self.paragraphs.iter().map(|(end, style, changes)| {
            let words = (2 + changes.len()).div_ceil(2);
            let mut entry = vec![0, words as u8];
            entry.extend(style.to_le_bytes());
            entry.extend(changes);
            entry.resize(2 + words * 2, 0);
            (*end, entry)
        });
        let index = page(&mut main, 13, paragraphs.collect());
        part(&mut main, 13, &index);
        let runs = self.runs.iter().map(|(end, changes)| (*end, [&[changes.len() as u8][..], &changes[..]].concat()));
        let index = page(&mut main, 1, runs.collect());
        part(&mut main, 12, &index);

        let mut fonts = [self.fonts.len() as u16, 0].map(u16::to_le_bytes).concat();
        for name in &self.fonts {
            let name: Vec<u8> = name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
            fonts.push(39 + name.len() as u8);
            fonts.extend([0; 39]);
            fonts.extend(name);
        }
        part(&mut main, 15, &fonts);
        part(&mut main, 1, &sheet());
        let places: Vec<u32> = self.footnotes.iter().map(|(at, _)| *at).chain([counts[0]]).collect();
        let mut places: Vec<u8> = places.iter().flat_map(|at| at.to_le_bytes()).collect();
        places.extend(vec![0; self.footnotes.len() * 2]);
        let ends: Vec<u32> = [0].into_iter().chain(self.footnotes.iter().map(|(_, end)| *end)).collect();
        let texts: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
        part(&mut main, 2, &places);
        part(&mut main, 3, &texts);

        let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
        file.create_stream("/WordDocument").unwrap().write_all(&main).unwrap();
        file.create_stream("/1Table").unwrap().write_all(&tables).unwrap();
        file.flush().unwrap();
        file.into_inner().into_inner()
    }
}

/// Appends a page of properties by the ends of their runs, and gives the index of it.
fn page(main: &mut Vec<u8>, entry: usize, runs: Vec<(usize, Vec<u8>)>) -> Vec<u8> {
    let number = (main.len() / 512) as u32;
    let mut page = vec![0; 512];
    page[511] = runs.len() as u8;
    let bounds: Vec<u32> = [0].into_iter().chain(runs.iter().map(|run| run.0)).map(|end| (TEXT + end) as u32).collect();
    let mut end = 510;
    for (index, bound) in bounds.iter().enumerate() {
        page[index * 4..][..4].copy_from_slice(&bound.to_le_bytes());
    }
    for (index, (_, bytes)) in runs.iter().enumerate() {
        end -= bytes.len() + bytes.len() % 2;
        page[end..end + bytes.len()].copy_from_slice(bytes);
        page[bounds.len() * 4 + index * entry] = (end / 2) as u8;
    }
    main.extend(page);
    [bounds[0], bounds[bounds.len() - 1], number].map(u32::to_le_bytes).concat()
}

/// The styles of a document: the usual one, the first heading, one that is based on it, one with an outline level, a hidden
/// one, and one that is based on it; then of characters one that hides them, one that shows them, one that
/// raises them, and one that is based on it.
fn sheet() -> Vec<u8> {
    let mut sheet = vec![18, 0, 10, 0, 10, 0];
    sheet.resize(20, 0);
    let styles: [(u16, u16, &[u8]); 4] = [(0, 0xFFF, &[]), (1, 0, &[]), (0xFFE, 1, &[]), (0xFFE, 0, &[0x40, 0x26, 1])];
    for (built_in, base, changes) in styles {
        let mut style = [built_in, (base << 4) | 1, 0, 0, 0, 1, u16::from(b'x'), 0].map(u16::to_le_bytes).concat();
        style.extend((2 + changes.len() as u16).to_le_bytes());
        style.extend([0, 0]);
        style.extend(changes);
        sheet.extend((style.len() as u16).to_le_bytes());
        sheet.extend(&style);
        sheet.resize(sheet.len() + style.len() % 2, 0);
    }
    let shown: [u8; 3] = [0x3C, 0x08, 0];
    let others: [(u16, u16, &[u8]); 6] =
        [(1, 0xFFF, &HIDDEN), (1, 4, &[]), (2, 0xFFF, &HIDDEN), (2, 0xFFF, &shown), (2, 0xFFF, &RAISED), (2, 8, &[])];
    for (kind, base, changes) in others {
        let mut style = [0xFFE, (base << 4) | kind, 0, 0, 0, 1, u16::from(b'x'), 0].map(u16::to_le_bytes).concat();
        if kind == 1 {
            // The list of changes to paragraphs has a byte behind it, so that the next one is at an even place.
            style.extend([5, 0, 4, 0, 0x16, 0x24, 0, 0]);
        }
        style.extend((changes.len() as u16).to_le_bytes());
        style.extend(changes);
        sheet.extend((style.len() as u16).to_le_bytes());
        sheet.extend(&style);
        sheet.resize(sheet.len() + style.len() % 2, 0);
    }
    sheet
}

const IN_TABLE: [u8; 3] = [0x16, 0x24, 1];
const ENDS_ROW: [u8; 6] = [0x16, 0x24, 1, 0x17, 0x24, 1];
const HIDDEN: [u8; 3] = [0x3C, 0x08, 1];
const RAISED: [u8; 3] = [0x48, 0x2A, 1];
const DELETED: [u8; 3] = [0x00, 0x08, 1];

fn read(made: &Made) -> Extraction {
    let bytes = made.bytes();
    assert_eq!(detect(&mut Cursor::new(&bytes)).unwrap().format, Some(Format::Doc));
    extract(Cursor::new(bytes), &Limits::default()).unwrap()
}

#[test]
fn paragraphs_headings_lists_and_tables_become_markdown() {
    for is_wide in [false, true] {
        let mut made = Made { is_wide, ..Made::default() };
        made.paragraph("The pond\r", 1, &[]).paragraph("Its ducks are c\u{F4}t\u{E9}.\r", 0, &[]);
        made.paragraph("Based on a heading\r", 2, &[]).paragraph("Outline\r", 3, &[]);
        made.paragraph("Own level\r", 0, &[0x40, 0x26, 2]).paragraph("No heading\r", 1, &[0x40, 0x26, 9]);
        made.paragraph("An item\r", 0, &[0x0B, 0x46, 1, 0]);
        made.paragraph("Below it\r", 0, &[0x0B, 0x46, 1, 0, 0x0A, 0x26, 1]);
        for row in [["Bird", "Nests"], ["Heron", "5"]] {
            made.paragraph(&format!("{}\u{7}", row[0]), 0, &IN_TABLE).paragraph("Of\r", 0, &IN_TABLE);
            made.paragraph(&format!("{}\u{7}", row[1]), 0, &IN_TABLE).paragraph("\u{7}", 0, &ENDS_ROW);
        }
        made.paragraph("\r", 0, &[]).paragraph("Line\u{B}break\u{C}", 0, &[]).paragraph("The end\r", 0, &[]);
        let read = read(&made);
        assert_eq!(
            read.text,
            "# The pond\n\nIts ducks are côté.\n\n# Based on a heading\n\n## Outline\n\n### Own level\n\nNo heading\n\n\
             - An item\n  - Below it\n\n| Bird | Of Nests |\n| --- | --- |\n| Heron | Of 5 |\n\nLine\nbreak\n\nThe end"
        );
        let levels: Vec<u8> = read.headings.iter().map(|heading| heading.level).collect();
        assert_eq!((levels, read.headings_from.as_deref()), (vec![1, 1, 2, 3], Some("styles")));
    }
}

#[test]
fn fields_show_their_results_and_what_is_hidden_or_deleted_is_not_shown() {
    let mut made = Made::default();
    made.run("See \u{13} HYPERLINK \u{13} NESTED \u{14}x\u{15} \u{14}the \u{13}REF\u{14}weir\u{15}\u{15} and", &[]);
    made.run(" hidden", &HIDDEN).run(" deleted", &DELETED).run(" (", &[0x09, 0x6A, 0, 0, 0xB7, 0xF0]);
    made.paragraph(" 3\u{1E}4 \u{1}\u{8}km\u{13}PAGE\u{15}\u{96}\r", 0, &[]);
    let read = read(&made);
    assert_eq!(read.text, "See the weir and • 3-4 km–");
    assert_eq!(read.facts["pictures_left_out"], 1);
}

#[test]
fn characters_of_a_symbol_font_are_read_as_it_shows_them() {
    let symbol = |font: u8, glyph: u8| [0x09, 0x6A, font, 0, glyph, 0xF0];
    let mut made = Made { is_wide: true, fonts: vec!["Times New Roman", "Symbol"], ..Made::default() };
    made.run("5 ", &[]).run("(", &symbol(1, 0x6D)).run("g, ", &[]);
    made.run("\u{F0B3}", &[0x4F, 0x4A, 1, 0, 0x51, 0x4A, 1, 0]).run(" 18", &[]);
    // Nobody knows what these show, but for the bullet.
    made.run("(", &symbol(0, 0x6D)).run("(", &symbol(9, 0x6D)).run("\u{F06D}", &[]).run(" (", &symbol(9, 0xB7));
    made.paragraph("\r", 0, &[]);
    assert_eq!(read(&made).text, "5 μg, ≥ 18 •");
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let (raised, lowered): ([u8; 3], [u8; 3]) = (RAISED, [0x48, 0x2A, 2]);
    let mut made = Made { is_wide: true, ..Made::default() };
    made.run("In 2019", &[]).run("3", &raised).run(" it was 10", &[]).run("12", &raised).run(", 10", &[]);
    made.run("\u{2212}3", &raised).run(", 1", &[]).run("st", &raised).run(", H", &[]).run("2", &lowered);
    made.run("O, m", &[]).run("2", &raised).run("5", &[]).paragraph("\r", 0, &[]);
    assert_eq!(read(&made).text, "In 2019^3 it was 10^12, 10^−3, 1st, H2O, m25");
    // A style, or the one that it is based on, raises what does not say otherwise.
    let of_style = |style: u8| [0x30, 0x4A, style, 0];
    let mut made = Made::default();
    made.run("In 2019", &[]).run("3", &of_style(8)).run(" it was 10", &[]).run("6", &of_style(9));
    made.run(" of 10", &[]).run("6", &[of_style(8).as_slice(), &[0x48, 0x2A, 0]].concat()).paragraph("\r", 0, &[]);
    assert_eq!(read(&made).text, "In 2019^3 it was 10^6 of 106");
}

#[test]
fn what_a_style_hides_is_not_shown() {
    let of_characters = |style: u8| [0x30, 0x4A, style, 0];
    let mut made = Made::default();
    made.paragraph("Seen\r", 0, &[]).paragraph("By a style\r", 4, &[]).paragraph("By its base\r", 5, &[]);
    made.run("Also", &[]).run(" by a style of characters", &of_characters(6)).paragraph(" seen\r", 0, &[]);
    made.run("By a style", &[]).run("Shown all the same", &[0x3C, 0x08, 0]).run(" in part", &[0x3C, 0x08, 0x81]);
    made.run("and not so", &[0x3C, 0x08, 0x80]).run(" or so", &of_characters(7)).paragraph("\r", 5, &[]);
    assert_eq!(read(&made).text, "Seen\n\nAlso seen\n\nShown all the same in part or so");
}

#[test]
fn what_a_piece_hides_or_deletes_is_not_shown() {
    let named = (1 << 1) | 1;
    let by_list = |changes: &[u8]| (named, changes.to_vec());
    let deleted_and_marked_otherwise = [&DELETED[..], &[0x35, 0x08, 1]].concat();
    for (piece, list) in [
        ((0x41 << 1) | (1 << 8), Vec::new()),
        ((0x5C << 1) | (1 << 8), Vec::new()),
        by_list(&HIDDEN),
        by_list(&deleted_and_marked_otherwise),
    ] {
        let mut made = Made { piece, list, ..Made::default() };
        made.paragraph("Not to be seen\r", 0, &[]);
        assert_eq!(read(&made).text, "", "{piece:#x}");
    }
    // What a piece says goes before what its characters say.
    let mut made = Made { piece: 0x5C << 1, ..Made::default() };
    made.run("To be seen", &HIDDEN).run(" or not", &DELETED).paragraph("\r", 0, &[]);
    assert_eq!(read(&made).text, "To be seen");
}

#[test]
fn a_note_is_shown_where_its_mark_is() {
    let mut made = Made::default();
    made.run("Ducks", &[]).run("\u{2}", &DELETED).run(" and {", &[]);
    made.run("\u{13}REF\u{2}\u{14}herons\u{15}", &[]).run("\u{2}", &[]).paragraph("}\r", 0, &[]);
    let main = made.count();
    for note in ["One\r", "Two\r", "Three\r"] {
        made.paragraph(note, 0, &[]);
        made.footnotes.push((0, made.count() - main));
    }
    made.behind[1] = made.count() - main;
    for (note, at) in made.footnotes.iter_mut().zip([5, 16, 25]) {
        note.0 = at;
    }
    assert_eq!(read(&made).text, "Ducks and {herons (Three)}");
}

#[test]
fn wide_characters_may_be_pairs_of_surrogates() {
    let mut made = Made { is_wide: true, ..Made::default() };
    made.paragraph("Ducks 🦆 of Łódź\r", 0, &[]);
    assert_eq!(read(&made).text, "Ducks 🦆 of Łódź");
}

#[test]
fn notes_stand_where_they_belong_and_boxes_at_the_end() {
    let mut made = Made::default();
    made.paragraph("Seventy ducks\u{2} swim. Three dive\u{2}.\r", 0, &[]);
    let main = made.count();
    made.paragraph("\u{2} Counted in May.\r", 0, &[]);
    let first = made.count() - main;
    made.paragraph("\u{2} Or four.\r", 0, &[]);
    let second = made.count() - main;
    made.paragraph("\r", 0, &[]);
    made.behind[1] = made.count() - main;
    made.paragraph("A header\r", 0, &[]);
    made.behind[2] = made.count() - main - made.behind[1];
    made.paragraph("In a box\r", 0, &[]);
    made.behind[6] = made.count() - main - made.behind[1] - made.behind[2];
    made.footnotes = vec![(13, first), (31, second)];
    assert_eq!(
        read(&made).text,
        "Seventy ducks (Counted in May.) swim. Three dive (Or four.).\n\nIn a box",
        "and no header"
    );
}

#[test]
fn closed_documents_are_refused_by_name() {
    // Obfuscated as Word 95 did it.
    let mut made = Made { flags: 0x8100, ..Made::default() };
    made.paragraph("Secret\r", 0, &[]);
    let bytes = made.bytes();
    let patterns = probe(Cursor::new(&bytes), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::IsEncrypted) && patterns.holds(Pattern::IsLegacyBinary));
    let error = extract(Cursor::new(&bytes), &Limits::default()).unwrap_err();
    assert_eq!(error.code(), "legacy_word");
    assert!(error.to_string().contains("password") && error.to_string().contains("docx"), "{error}");
    assert_eq!(crate::refusal(Format::Doc, Cursor::new(&bytes), &patterns), Some(error));

    let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    let older = [0xDC, 0xA5, 0x68, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.create_stream("/WordDocument").unwrap().write_all(&older).unwrap();
    let bytes = file.into_inner().into_inner();
    let patterns = probe(Cursor::new(&bytes), &Limits::default()).unwrap();
    assert!(!patterns.holds(Pattern::IsEncrypted) && patterns.get(Pattern::HasTextLayer).is_none());
    let error = extract(Cursor::new(&bytes), &Limits::default()).unwrap_err();
    assert!(error.code() == "legacy_word" && error.to_string().contains("older than Office 97"), "{error}");

    let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    file.create_stream("/WordDocument").unwrap().write_all(&older[..9]).unwrap();
    let bytes = file.into_inner().into_inner();
    let error = extract(Cursor::new(&bytes), &Limits::default()).unwrap_err();
    assert_eq!(error.code(), "corrupt", "nothing says that it is old");
}

#[test]
fn pieces_that_claim_the_same_bytes_multiply_neither_the_text_nor_the_work() {
    let main = vec![b'x'; 1000];
    let part = |count: u32| {
        let mut part = vec![2];
        part.extend((4 + count * 12).to_le_bytes());
        part.extend((0..=count).flat_map(|index| (index * 1000).to_le_bytes()));
        part.extend((0..count).flat_map(|_| [0, 0, 0, 0, 0, 0x40, 0, 0]));
        part
    };
    let refused = |count: u32, limits: &Limits| Pieces::read(&main, &part(count), limits).err().unwrap();
    let error = refused(4, &Limits { text_bytes: 3_999, ..Limits::default() });
    assert_eq!(error.limit(), Some(crate::Limit::TextBytes));
    assert_eq!(refused(5, &Limits::default()).code(), "corrupt", "no setting allows it");
    let four = part(4);
    let pieces = Pieces::read(&main, &four, &Limits::default()).unwrap();
    assert_eq!(pieces.characters(500..2_500).count(), 2_000);
    assert_eq!(pieces.characters(3_999..200_000).count(), 1, "no more than there are");
}

#[test]
fn damage_anywhere_is_survived() {
    let mut made = Made::default();
    made.paragraph("The pond\r", 1, &[]).paragraph("Bird\u{7}", 0, &IN_TABLE).paragraph("\u{7}", 0, &ENDS_ROW);
    made.run("x\u{13}REF\u{14}weir\u{15}", &HIDDEN).paragraph("\r", 0, &[]);
    let bytes = made.bytes();
    for at in (0..bytes.len()).step_by(31) {
        for value in [0, 0xFF] {
            let mut bytes = bytes.clone();
            bytes[at] = value;
            if let Err(error) = extract(Cursor::new(&bytes), &Limits::default()) {
                assert!(error.is_permanent(), "{at}: {error}");
            }
        }
    }
}

/// A document as a password locks it, with this length of keys.
fn locked(plain: &[u8], password: &str, bits: Option<u32>) -> Vec<u8> {
    let (keys, description) = locked_with(password, bits);
    let mut old = CompoundFile::open(Cursor::new(plain)).unwrap();
    let mut stream = |name: &str| {
        let mut bytes = Vec::new();
        old.open_stream(name).unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    };
    let (mut main, mut tables) = (stream("/WordDocument"), stream("/1Table"));
    main[11] |= 1;
    main[14..18].copy_from_slice(&(description.len() as u32).to_le_bytes());
    let mut laid = vec![0; main.len().max(tables.len())];
    keys.stream(512).open(&mut laid);
    for (bytes, plain) in [(&mut main, 68), (&mut tables, description.len())] {
        bytes.iter_mut().zip(&laid).skip(plain).for_each(|(byte, with)| *byte ^= with);
    }
    tables[..description.len()].copy_from_slice(&description);
    let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    file.create_stream("/WordDocument").unwrap().write_all(&main).unwrap();
    file.create_stream("/1Table").unwrap().write_all(&tables).unwrap();
    file.flush().unwrap();
    file.into_inner().into_inner()
}

#[test]
fn a_password_opens_documents_of_both_ciphers() {
    let mut made = Made::default();
    made.paragraph("The heron house\r", 1, &[]).paragraph("Six herons nest there.\r", 0, &[]);
    let plain = made.bytes();
    let text = extract(Cursor::new(&plain), &Limits::default()).unwrap().text;
    assert!(text.contains("The heron house") && text.contains("Six herons"), "{text}");
    let limits = Limits::default();
    for bits in [None, Some(40), Some(128)] {
        let bytes = locked(&plain, "Wehr über Erlen", bits);
        let password = Secret::new("Wehr über Erlen");
        let access = Access { password: Some(&password), ..Access::from(&limits) };
        assert_eq!(extract(Cursor::new(&bytes), access).unwrap().text, text, "{bits:?}");
        let patterns = probe(Cursor::new(&bytes), access).unwrap();
        for pattern in [Pattern::IsEncrypted, Pattern::HasTextLayer, Pattern::IsLegacyBinary] {
            assert!(patterns.holds(pattern), "{bits:?}: {pattern:?}");
        }
        assert_eq!(crate::refusal(Format::Doc, Cursor::new(&bytes), &patterns), None);

        let refused = FormatError::Encrypted { format: Format::Doc };
        let closed = probe(Cursor::new(&bytes), &limits).unwrap();
        assert!(closed.holds(Pattern::IsEncrypted) && closed.get(Pattern::HasTextLayer).is_none());
        assert_eq!(crate::refusal(Format::Doc, Cursor::new(&bytes), &closed), Some(refused.clone()));
        let wrong = Secret::new("heron");
        let access = Access { password: Some(&wrong), ..Access::from(&limits) };
        assert_eq!(probe(Cursor::new(&bytes), access).unwrap_err(), refused);
        assert_eq!(extract(Cursor::new(&bytes), access).unwrap_err(), refused);
    }
    // One that does not say how it is locked.
    let mut made = Made { flags: 0x0100, ..Made::default() };
    made.paragraph("Secret\r", 0, &[]);
    assert_eq!(extract(Cursor::new(made.bytes()), &limits).unwrap_err().code(), "corrupt");
}

#[test]
fn damage_anywhere_of_a_locked_document_is_survived() {
    let mut made = Made::default();
    made.paragraph("The pond\r", 1, &[]).paragraph("Six herons nest there.\r", 0, &[]);
    let whole = locked(&made.bytes(), "heron", Some(40));
    let (limits, password) = (Limits::default(), Secret::new("heron"));
    let access = Access { password: Some(&password), ..Access::from(&limits) };
    for at in (0..whole.len()).step_by(31) {
        for value in [0, 0xFF] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            if let Err(error) = extract(Cursor::new(&bytes), access) {
                assert!(error.is_permanent(), "{at}: {error}");
            }
        }
    }
}
