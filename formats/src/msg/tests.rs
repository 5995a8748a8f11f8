use super::*;
use crate::{Limit, detect};
use std::io::Write;

/// 2026-03-04T05:06:07Z.
const TIME: u64 = 134_170_743_670_000_000;

/// A message that a test makes, by the paths of its storages; that of the message itself is empty.
struct Made(CompoundFile<Cursor<Vec<u8>>>);

impl Made {
    /// A message with a subject and a body.
    fn new(subject: &str, body: &str) -> Self {
        let mut made = Self(CompoundFile::create(Cursor::new(Vec::new())).unwrap());
        made.table("", OF_FILE, &[]).text("", id::SUBJECT, subject).text("", id::BODY, body);
        made
    }

    fn storage(&mut self, path: &str) -> &mut Self {
        self.0.create_storage(path).unwrap();
        self
    }

    fn stream(&mut self, path: &str, bytes: &[u8]) -> &mut Self {
        self.0.create_stream(path).unwrap().write_all(bytes).unwrap();
        self
    }

    /// A property with its own stream.
    fn property(&mut self, at: &str, id: u16, kind: u16, bytes: &[u8]) -> &mut Self {
        self.stream(&format!("{at}/__substg1.0_{id:04X}{kind:04X}"), bytes)
    }

    fn text(&mut self, at: &str, id: u16, text: &str) -> &mut Self {
        let bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        self.property(at, id, 0x001F, &bytes)
    }

    fn binary(&mut self, at: &str, id: u16, bytes: &[u8]) -> &mut Self {
        self.property(at, id, 0x0102, bytes)
    }

    /// The table of a storage, with numbers and times.
    fn table(&mut self, at: &str, before: usize, values: &[(u16, u64)]) -> &mut Self {
        let mut bytes = vec![0; before];
        for (id, value) in values {
            bytes.extend([3, 0]);
            bytes.extend(id.to_le_bytes());
            bytes.extend([6, 0, 0, 0]);
            bytes.extend(value.to_le_bytes());
        }
        self.stream(&format!("{at}/{TABLE}"), &bytes)
    }

    fn recipient(&mut self, number: u32, kind: u32, name: &str, address: &str) -> &mut Self {
        let at = format!("/__recip_version1.0_#{number:08X}");
        self.storage(&at).table(&at, OF_PART, &[(id::RECIPIENT_KIND, kind.into())]);
        self.text(&at, id::RECIPIENT.name, name).text(&at, id::RECIPIENT.smtp, address)
    }

    /// An attachment without content; returns its path.
    fn attachment(&mut self, at: &str, number: u32, method: u64, name: &str) -> String {
        let at = format!("{at}/__attach_version1.0_#{number:08X}");
        self.storage(&at).table(&at, OF_PART, &[(id::METHOD, method)]).text(&at, id::LONG_NAME, name);
        at
    }

    fn file(&mut self, number: u32, name: &str, kind: &str, bytes: &[u8]) -> &mut Self {
        let at = self.attachment("", number, 1, name);
        self.text(&at, id::MIME, kind).binary(&at, id::DATA, bytes)
    }

    /// A message within another one; returns its path.
    fn within(&mut self, at: &str, number: u32, subject: &str) -> String {
        let at = format!("{}/__substg1.0_3701000D", self.attachment(at, number, 5, "message"));
        self.storage(&at).table(&at, OF_MESSAGE, &[]).text(&at, id::SUBJECT, subject);
        at
    }

    fn bytes(mut self) -> Vec<u8> {
        self.0.flush().unwrap();
        self.0.into_inner().into_inner()
    }
}

fn read(made: Made) -> Extraction {
    let bytes = made.bytes();
    assert_eq!(detect(&mut Cursor::new(&bytes)).unwrap().format, Some(Format::Msg));
    extract(Cursor::new(bytes), &Limits::default()).unwrap()
}

/// The name and the bytes of an attachment.
type File = (String, Vec<u8>);

/// The attachments of a file, and those that were left out.
fn files(bytes: &[u8], limits: &Limits) -> (Vec<File>, Vec<(String, LeftOut)>) {
    let (mut files, mut left_out) = (Vec::<File>::new(), Vec::new());
    crate::members(Format::Msg, Cursor::new(bytes), limits, &mut |part| {
        match part {
            MemberPart::Begin(head) => {
                assert_eq!(head.index, (files.len() + left_out.len()) as u64);
                files.push((head.name, Vec::new()));
            }
            MemberPart::Bytes(bytes) => files.last_mut().unwrap().1.extend(bytes),
            MemberPart::End => {}
            MemberPart::LeftOut { name, reason } => left_out.push((name, reason)),
        }
        Ok(())
    })
    .unwrap();
    (files, left_out)
}

/// RTF in the form of a message, which says that it is not compressed.
fn rtf(text: &str) -> Vec<u8> {
    [&[0; 8][..], b"MELA", &[0; 4], text.as_bytes()].concat()
}

#[test]
fn fields_text_and_attachments_are_read_as_those_of_mail_are() {
    let mut made = Made::new("Ducks of the Mühle", "Seventy ducks.\r\n\r\nAnn\r\n");
    made.table("", OF_FILE, &[(id::SUBMITTED, TIME)]);
    made.text("", id::FROM.name, "Ann Onym").text("", id::FROM.smtp, "ann@example.org");
    made.text("", id::SENDER.name, "Her secretary").text("", id::SENDER.address, "/O=EXAMPLE/CN=SECRETARY");
    made.recipient(0, 1, "'ben@example.org'", "ben@example.org").recipient(1, 2, "Dan", "dan@example.org");
    made.recipient(2, 1, "Gray, C.", "gray@example.org").recipient(3, 3, "Nobody sees", "hidden@example.org");
    made.file(0, "../counts.csv", "text/csv", b"a,b\n1,2\n").file(1, "log", "", &[7; 9000]);
    let bytes = made.bytes();
    let read = extract(Cursor::new(&bytes), &Limits::default()).unwrap();
    assert_eq!(
        read.text,
        "# Ducks of the Mühle\n\nFrom: Ann Onym <ann@example.org>\nTo: ben@example.org, Gray, C. <gray@example.org>\n\
         Cc: Dan <dan@example.org>\nDate: 2026-03-04T05:06:07Z\n\nSeventy ducks.\n\nAnn\n\nAttachments:\n\n\
         - ../counts.csv (text/csv, 8 bytes)\n- log (9000 bytes)"
    );
    let facts = ["subject", "from", "cc", "date"].map(|name| read.facts[name].clone());
    let expected: [serde_json::Value; 4] = [
        "Ducks of the Mühle".into(),
        "Ann Onym <ann@example.org>".into(),
        "Dan <dan@example.org>".into(),
        "2026-03-04T05:06:07Z".into(),
    ];
    assert_eq!(facts, expected);
    assert_eq!((&read.facts["messages"], &read.facts[ATTACHMENTS][0]["name"]), (&1.into(), &"../counts.csv".into()));
    assert_eq!((read.headings.len(), read.headings_from.as_deref()), (1, Some("mail")));

    let (read, left) = files(&bytes, &Limits::default());
    assert_eq!(read, [("../counts.csv".to_owned(), b"a,b\n1,2\n".to_vec()), ("log".to_owned(), vec![7; 9000])]);
    assert!(left.is_empty(), "{left:?}");
    assert!(probe(Cursor::new(&bytes), &Limits::default()).unwrap().holds(Pattern::HasMembers));
    let plain = Made::new("none", "Text.").bytes();
    assert!(!probe(Cursor::new(plain), &Limits::default()).unwrap().holds(Pattern::HasMembers));

    let (read, left) = files(&bytes, &Limits { members: 1, ..Limits::default() });
    assert_eq!((read.len(), &left[..]), (1, &[("log".to_owned(), LeftOut::Members)][..]));
    let (read, left) = files(&bytes, &Limits { member_bytes: 100, ..Limits::default() });
    assert_eq!((read.len(), &left[..]), (1, &[("log".to_owned(), LeftOut::MemberBytes)][..]));
}

#[test]
fn the_best_form_of_the_body_is_taken() {
    let page = b"<html><body><h2>Counts</h2><p>Seventy ducks were <b>counted</b> at the mill pond.</p></body></html>";
    let whole = "Seventy ducks were counted at the pond";
    let body = |plain: &str, property: u16, bytes: &[u8]| {
        let mut made = Made::new("Ducks", plain);
        made.binary("", property, bytes);
        read(made)
    };
    assert_eq!(body(whole, id::BODY_HTML, page).text, format!("# Ducks\n\n{whole}"));
    for stub in ["See the page.", ""] {
        let read = body(stub, id::BODY_HTML, page);
        assert!(read.text.contains("Seventy ducks were **counted** at the mill pond."), "{}", read.text);
        assert!(!read.text.contains("See the page"), "{}", read.text);
        let headings: Vec<_> = read.headings.iter().map(|one| (one.level, one.title.as_str())).collect();
        assert_eq!(headings, [(1, "Ducks"), (3, "Counts")]);
    }
    let rich = "{\\rtf1\\ansi\\ansicpg1252\\fromhtml1{\\*\\htmltag64 <p>}\\pard Two herons at the M\\'fchle.\\par}";
    assert!(body("", id::BODY_RTF, &rtf(rich)).text.ends_with("# Ducks\n\nTwo herons at the Mühle."));
    // The text is there, whatever is wrong with the other form of it.
    for damaged in [&rtf("no document")[..], b"LZFu", &[0; 100]] {
        assert_eq!(body(whole, id::BODY_RTF, damaged).text, format!("# Ducks\n\n{whole}"));
    }
    let mut alone = Made::new("Ducks", "");
    alone.binary("", id::BODY_RTF, b"LZFu");
    assert_eq!(extract(Cursor::new(alone.bytes()), &Limits::default()).unwrap_err().code(), "corrupt");
}

#[test]
fn texts_are_read_in_the_code_page_of_the_message() {
    let polish = "Żółw i kaczka są nad wodą.";
    let (latin, _, _) = encoding_rs::WINDOWS_1250.encode(polish);
    for bytes in [polish.as_bytes(), &latin] {
        let mut made = Made::new("", "");
        made.table("", OF_FILE, &[(0x3FFD, 1250)]).property("", id::SUBJECT_WITHOUT_PREFIX, 0x001E, bytes);
        made.recipient(0, 1, "Ben", "ben@example.org").property("/__recip_version1.0_#00000000", 0x0001, 0x001E, b"x");
        assert!(read(made).text.starts_with(&format!("# {polish}\n\nTo: Ben <ben@example.org>")));
    }
    let mut made = Made::new("x", "");
    made.text("", id::SHOWN_TO, "Ann; Ben").text("", id::SENDER.name, "Dan");
    assert_eq!(read(made).text, "# x\n\nFrom: Dan\nTo: Ann; Ben", "without recipients of their own");
}

#[test]
fn messages_within_are_opened_as_far_as_a_limit() {
    let mut made = Made::new("1", "Outermost.");
    let mut at = String::new();
    for level in 2..=8 {
        at = made.within(&at, 0, &level.to_string());
        made.text(&at, id::BODY, &format!("Body of {level}."));
        let file = made.attachment(&at, 1, 1, &format!("{level}.txt"));
        made.binary(&file, id::DATA, format!("File of {level}.").as_bytes());
    }
    let bytes = made.bytes();
    let read = extract(Cursor::new(&bytes), &Limits::default()).unwrap();
    let headings: Vec<_> = read.headings.iter().map(|heading| (heading.level, heading.title.as_str())).collect();
    assert_eq!(headings, [(1, "1"), (2, "2"), (3, "3"), (4, "4"), (5, "5")]);
    assert!(read.text.contains("\n\n##### 5\n\nBody of 5."), "{}", read.text);
    assert!(read.text.ends_with("- message (application/vnd.ms-outlook)\n- 5.txt (10 bytes)"), "{}", read.text);
    assert_eq!(read.facts["messages"], 5);
    let (files, left) = files(&bytes, &Limits::default());
    let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["2.txt", "3.txt", "4.txt", "5.txt"]);
    assert_eq!(left, [("message".to_owned(), LeftOut::MemberDepth)]);
}

#[test]
fn what_has_no_bytes_of_its_own_is_left_out_with_the_reason() {
    let mut made = Made::new("Ducks", "Seventy ducks.");
    made.attachment("", 0, 2, "on-a-share.docx");
    let object = made.attachment("", 1, 6, "drawing");
    made.storage(&format!("{object}/__substg1.0_3701000D"));
    made.attachment("", 2, 1, "lost.txt");
    made.file(3, "lying.txt", "text/plain", &[b'x'; 5000]);
    let mut bytes = made.bytes();
    // The entry of the stream of the last one says that it is longer than the file.
    let lengths: Vec<usize> = memchr::memmem::find_iter(&bytes, &5000u64.to_le_bytes()).collect();
    for at in lengths {
        bytes[at..at + 4].copy_from_slice(&0x7FFF_0000u32.to_le_bytes());
    }
    let (read, left) = files(&bytes, &Limits::default());
    let left: Vec<_> = left.iter().map(|(name, reason)| (name.as_str(), *reason)).collect();
    assert!(read.is_empty(), "{read:?}");
    let expected = [
        ("on-a-share.docx", LeftOut::Link),
        ("drawing", LeftOut::Object),
        ("lost.txt", LeftOut::Damaged),
        ("lying.txt", LeftOut::Damaged),
    ];
    assert_eq!(left, expected);
    assert!(extract(Cursor::new(&bytes), &Limits::default()).unwrap().text.contains("- drawing\n- lost.txt"));
}

#[test]
fn limits_hold() {
    let limits = Limits { text_bytes: 1000, headings: 2, unpacked_bytes: 10_000, ..Limits::default() };
    let refused = |made: Made| extract(Cursor::new(made.bytes()), &limits).unwrap_err().limit();
    assert_eq!(refused(Made::new("x", &"ducks ".repeat(1000))), Some(Limit::TextBytes));
    let mut many = Made::new("x", "");
    for number in 0..3 {
        many.within("", number, "y");
    }
    assert_eq!(refused(many), Some(Limit::Headings));
    // Groups of eight references, each to 16 bytes of the window.
    let group = [&[0xFF][..], &[0, 0x0E].repeat(8)].concat();
    let mut bomb = Made::new("x", "");
    bomb.binary("", id::BODY_RTF, &[&[0; 8][..], b"LZFu", &[0; 4], &group.repeat(1000)].concat());
    assert_eq!(refused(bomb), Some(Limit::UnpackedBytes));

    let mut many = Made::new(&"very long ".repeat(10_000), "Ducks.");
    for number in 0..150 {
        many.recipient(number, 1, "", "a@example.org");
    }
    let read = read(many);
    assert!(read.headings[0].title.chars().count() == 300 && read.text.contains("and 50 more\n\nDucks."));
}

/// Has the entries of all streams of one length say that they are another one, which is the only one of its length.
fn claim(bytes: &mut [u8], of: u64, other: u64) {
    let entry = memchr::memmem::find(bytes, &other.to_le_bytes()).unwrap();
    // The sector where a stream begins stands before its length.
    let other = bytes[entry - 4..entry + 8].to_vec();
    let claiming: Vec<usize> = memchr::memmem::find_iter(bytes, &of.to_le_bytes()).collect();
    for entry in claiming {
        bytes[entry - 4..entry + 8].copy_from_slice(&other);
    }
}

#[test]
fn bytes_that_many_streams_claim_are_not_read_for_each() {
    let mut made = Made::new("Outermost", "");
    made.binary("", id::BODY_HTML, format!("<p>Seventy ducks.</p><!--{}-->", "x".repeat(200_000)).as_bytes());
    let whole = "<p>Seventy ducks.</p><!---->".len() as u64 + 200_000;
    for number in 0..20 {
        let at = made.within("", number, "Inner");
        made.binary(&at, id::BODY_HTML, &[b' '; 5000]);
    }
    let mut bytes = made.bytes();
    claim(&mut bytes, 5000, whole);
    let read = extract(Cursor::new(&bytes), &Limits::default()).unwrap();
    assert_eq!(read.text.matches("Seventy ducks.").count(), 21);
    let limits = Limits { input_bytes: 1 << 20, unpacked_bytes: 2 << 20, ..Limits::default() };
    assert!(bytes.len() < 1 << 20, "the file itself is small");
    assert_eq!(extract(Cursor::new(&bytes), &limits).unwrap_err().limit(), Some(Limit::UnpackedBytes));
}

#[test]
fn a_message_of_more_parts_than_are_allowed_is_refused() {
    let mut made = Made::new("Ducks", "Seventy ducks.");
    for number in 0..6 {
        made.recipient(number, 1, "Ben", &format!("ben{number}@example.org"));
    }
    made.within("", 0, "Inner");
    made.file(1, "log", "text/x-log", b"one");
    let bytes = made.bytes();
    let allowing = |zip_members| Limits { zip_members, ..Limits::default() };
    // Two attachments, six recipients and a message.
    let read = extract(Cursor::new(&bytes), &allowing(9)).unwrap();
    assert!(read.text.contains("ben5@example.org") && read.text.contains("Inner"), "{}", read.text);
    let error = extract(Cursor::new(&bytes), &allowing(8)).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::ZipMembers), "{error}");
    // The names of recipients are not read for the files: two attachments and a message.
    assert_eq!(files(&bytes, &allowing(3)).0, [("log".to_owned(), b"one".to_vec())]);
    let refused = crate::members(Format::Msg, Cursor::new(&bytes), &allowing(2), &mut |_| Ok(()));
    assert_eq!(refused.unwrap_err().limit(), Some(Limit::ZipMembers));
}

#[test]
fn a_part_of_another_name_is_none() {
    let mut made = Made::new("Ducks", "Seventy ducks.");
    made.storage("/__recip_version1.0_#1").storage("/__attach_version1.0_#+0000001");
    made.recipient(1, 1, "Ben", "b@example.org");
    assert_eq!(read(made).text, "# Ducks\n\nTo: Ben <b@example.org>\n\nSeventy ducks.");
}

/// A file that the system cannot read at some place.
struct Failing {
    bytes: Cursor<Vec<u8>>,
    at: std::ops::Range<u64>,
}

impl Read for Failing {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        match self.at.contains(&self.bytes.position()) {
            // EIO.
            true => Err(std::io::Error::from_raw_os_error(5)),
            false => self.bytes.read(bytes),
        }
    }
}

impl Seek for Failing {
    fn seek(&mut self, to: std::io::SeekFrom) -> std::io::Result<u64> {
        self.bytes.seek(to)
    }
}

#[test]
fn a_body_that_the_system_cannot_read_now_is_read_another_time() {
    let mut made = Made::new("Ducks", "Seventy ducks.");
    let page = format!("<p>Seventy ducks were counted.</p><!--{}-->", "x".repeat(8000));
    made.binary("", id::BODY_HTML, page.as_bytes());
    let bytes = made.bytes();
    let start = memchr::memmem::find(&bytes, b"<p>Seventy").unwrap() as u64;
    let source = Failing { bytes: Cursor::new(bytes), at: start..start + 8000 };
    assert!(!extract(source, &Limits::default()).unwrap_err().is_permanent());
}

#[test]
fn damage_ends_no_reader() {
    let mut made = Made::new("Ducks", "Seventy ducks.");
    made.recipient(0, 1, "Ben", "ben@example.org").file(0, "log", "text/x-log", &[7; 5000]);
    made.binary("", id::BODY_RTF, &rtf("{\\rtf1 Ducks of the mill pond, all seventy of them, and two herons.}"));
    let inner = made.within("", 1, "Inner");
    made.text(&inner, id::BODY, "Herons.");
    let whole = made.bytes();
    let limits = Limits { text_bytes: 1 << 20, member_bytes: 1 << 20, ..Limits::default() };
    let survive = |bytes: &[u8]| {
        for error in [
            extract(Cursor::new(bytes), &limits).err(),
            crate::members(Format::Msg, Cursor::new(bytes), &limits, &mut |_| Ok(())).err(),
        ] {
            assert!(error.as_ref().is_none_or(FormatError::is_permanent), "{error:?}");
        }
    };
    survive(&whole);
    for cut in (0..whole.len()).step_by(97) {
        survive(&whole[..cut]);
    }
    for at in (0..whole.len()).step_by(11) {
        for value in [0, 0xFF, whole[at] ^ 4] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            survive(&damaged);
        }
    }
}
