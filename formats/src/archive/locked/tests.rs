use super::*;
use crate::{Pattern, archive::u32_at, detect, extract, probe};
use std::io::Write;
use zip::{ZipWriter, write::SimpleFileOptions};

/// By the cipher of the first zip tools, beside a member that is open. The password is `heron`.
const OLD: &[u8] = include_bytes!("../files/old.zip");
/// By AES with keys of 128 and 256 bits. The password is that of [`LONG`].
const AES: [&[u8]; 2] = [include_bytes!("../files/aes-128.zip"), include_bytes!("../files/aes-256.zip")];
const LONG: &str = "Wehr über Erlen";

fn unlock_within(bytes: &[u8], password: &str, limits: &Limits) -> Result<Extraction, FormatError> {
    let password = Secret::new(password);
    let access = Access { password: Some(&password), ..Access::from(limits) };
    let patterns = probe(Format::Zip, Cursor::new(bytes), access)?;
    for pattern in [Pattern::IsEncrypted, Pattern::HasTextLayer, Pattern::HasHeadings] {
        assert!(patterns.holds(pattern), "{pattern:?}");
    }
    assert!(patterns.get(Pattern::HasMembers).is_none(), "no task could open them later");
    extract(Format::Zip, Cursor::new(bytes), access)
}

fn unlock(bytes: &[u8], password: &str) -> Result<Extraction, FormatError> {
    unlock_within(bytes, password, &Limits::default())
}

#[test]
fn a_password_opens_members_of_both_ciphers_as_sections_of_a_text() {
    for (bytes, password) in [(OLD, "heron"), (AES[0], LONG), (AES[1], LONG)] {
        assert_eq!(detect(&mut Cursor::new(bytes)).unwrap().format, Some(Format::Zip));
        let read = unlock(bytes, password).unwrap();
        let begin =
            "# rules/house.md\n\n# The heron house\n\nSix herons nest above the wéir.\n\n# nests.csv\n\n# Sheet1\n\n";
        assert!(read.text.starts_with(begin), "{}", read.text);
        assert!(read.text.contains("| Nest | Eggs |\n| --- | --- |\n| Alder | 5 |"), "{}", read.text);
        let headings: Vec<_> = read.headings.iter().map(|heading| (heading.level, heading.title.as_str())).collect();
        let expected = [(1, "rules/house.md"), (2, "The heron house"), (1, "nests.csv"), (2, "Sheet1")];
        assert_eq!(headings[..4], expected);
        for heading in &read.headings {
            assert!(read.text[heading.start..].starts_with(&format!("# {}", heading.title)), "{heading:?}");
        }
        assert_eq!(read.facts["locked_format"], "zip");
        assert!(!read.facts.contains_key("members.left_out"));
        assert_eq!(crate::tables(&read).tables.len(), 1);
    }
    let with_open = unlock(OLD, "heron").unwrap();
    assert!(with_open.text.ends_with("\n\n# open.txt\n\nAnybody may read this."), "{}", with_open.text);
}

#[test]
fn a_wrong_password_is_told_and_without_one_an_archive_is_its_members() {
    for bytes in [OLD, AES[0], AES[1]] {
        for password in ["stork", "Heron", ""] {
            assert_eq!(unlock(bytes, password).unwrap_err(), FormatError::Encrypted { format: Format::Zip });
        }
        let limits = Limits::default();
        let closed = probe(Format::Zip, Cursor::new(bytes), &limits).unwrap();
        assert!(closed.holds(Pattern::HasMembers) && closed.get(Pattern::IsEncrypted).is_none());
        assert_eq!(extract(Format::Zip, Cursor::new(bytes), &limits).unwrap_err().code(), "unsupported");
    }
}

#[test]
fn a_member_that_cannot_be_read_is_named_and_the_others_are_read() {
    let mut changed = AES[0].to_vec();
    changed[64] ^= 1;
    let read = unlock(&changed, LONG).unwrap();
    assert!(read.text.starts_with("# nests.csv"), "{}", read.text);
    let left_out =
        json!({"count": 1, "reasons": {"encrypted": 1}, "first": [{"name": "rules/house.md", "reason": "encrypted"}]});
    assert_eq!(read.facts["members.left_out"], left_out);
    for (limits, reason) in [
        (Limits { members: 1, ..Limits::default() }, "members"),
        (Limits { member_bytes: 60, ..Limits::default() }, "member_bytes"),
        (Limits { input_bytes: 65, ..Limits::default() }, "input_bytes"),
    ] {
        for bytes in AES {
            let left_out = unlock_within(bytes, LONG, &limits).unwrap().facts["members.left_out"]["reasons"].clone();
            assert_eq!(left_out, json!({reason: 1}));
        }
    }
}

/// The places of the entries in the directory.
fn entries(bytes: &[u8]) -> Vec<usize> {
    memchr::memmem::find_iter(bytes, b"PK\x01\x02").collect()
}

#[test]
fn bytes_that_two_members_share_are_opened_once() {
    let mut changed = AES[0].to_vec();
    let second = entries(&changed)[1];
    changed[second + 42..second + 46].fill(0);
    let read = unlock(&changed, LONG).unwrap();
    assert!(read.text.starts_with("# rules/house.md") && !read.text.contains("nests.csv"), "{}", read.text);
    assert_eq!(read.facts["members.left_out"]["reasons"], json!({"overlap": 1}));
}

/// The members of two archives in one.
fn joined(first: &[u8], second: &[u8]) -> Vec<u8> {
    let parts = |bytes: &[u8]| {
        let end = memchr::memmem::rfind(bytes, b"PK\x05\x06").unwrap();
        let directory = u32_at(bytes, end + 16) as usize;
        (bytes[..directory].to_vec(), bytes[directory..end].to_vec())
    };
    let ((mut joined, mut directory), (members, mut more)) = (parts(first), parts(second));
    for at in entries(&more) {
        let header = u32_at(&more, at + 42) + joined.len() as u32;
        more[at + 42..at + 46].copy_from_slice(&header.to_le_bytes());
    }
    joined.extend(members);
    directory.extend(more);
    let (count, size, offset) = (entries(&directory).len() as u16, directory.len() as u32, joined.len() as u32);
    joined.extend(directory);
    joined.extend(b"PK\x05\x06\0\0\0\0");
    joined.extend([count, count].map(u16::to_le_bytes).concat());
    joined.extend([size, offset].map(u32::to_le_bytes).concat());
    joined.extend([0, 0]);
    joined
}

#[test]
fn members_that_unpack_to_too_much_are_left_out_and_count() {
    let mut bomb = ZipWriter::new(Cursor::new(Vec::new()));
    bomb.start_file("bomb.txt", SimpleFileOptions::default()).unwrap();
    bomb.write_all(&vec![b'x'; Limits::RATIO_FREE_BYTES as usize + 1]).unwrap();
    let bomb = bomb.finish().unwrap().into_inner();
    let read = unlock(&joined(AES[0], &bomb), LONG).unwrap();
    assert!(read.text.starts_with("# rules/house.md"), "{}", read.text);
    assert_eq!(read.facts["members.left_out"]["reasons"], json!({"zip_ratio": 1}));
    let limits = Limits { member_bytes: Limits::RATIO_FREE_BYTES + 60, ..Limits::default() };
    let read = unlock_within(&joined(&bomb, AES[0]), LONG, &limits).unwrap();
    assert_eq!(read.facts["members.left_out"]["reasons"], json!({"member_bytes": 1, "zip_ratio": 1}));
}

#[test]
fn a_right_password_is_not_called_wrong_where_nothing_else_can_be_read() {
    let mut changed = AES[1].to_vec();
    let places: Vec<usize> = entries(&changed).into_iter().zip(["rules/house.md", "nests.csv"]).map(method).collect();
    changed[places[0]] = 14;
    let read = unlock(&changed, LONG).unwrap();
    assert_eq!(read.facts["members.left_out"]["reasons"], json!({"compression": 1}));
    changed[places[1]] = 14;
    let password = Secret::new(LONG);
    let none = Limits { members: 0, ..Limits::default() };
    for (bytes, limits, code) in [(&changed[..], &Limits::default(), "unsupported"), (AES[1], &none, "limit_exceeded")]
    {
        let access = Access { password: Some(&password), ..Access::from(limits) };
        assert_eq!(probe(Format::Zip, Cursor::new(bytes), access).unwrap_err().code(), code);
        assert_eq!(extract(Format::Zip, Cursor::new(bytes), access).unwrap_err().code(), code);
    }
}

#[test]
fn an_archive_whose_locked_members_are_over_a_limit_names_it_whatever_the_password() {
    for (limits, limit, setting) in [
        (Limits { input_bytes: 10, ..Limits::default() }, Limit::InputBytes, "SVC_MAX_UPLOAD_BYTES"),
        (Limits { members: 0, ..Limits::default() }, Limit::Members, "SVC_PARSER_MEMBERS"),
        (Limits { member_bytes: 0, ..Limits::default() }, Limit::MemberBytes, "SVC_PARSER_MEMBER_BYTES"),
    ] {
        for (bytes, right) in [(OLD, "heron"), (AES[0], LONG), (AES[1], LONG)] {
            for password in [right, "stork"] {
                let password = Secret::new(password);
                let access = Access { password: Some(&password), ..Access::from(&limits) };
                for refused in [
                    probe(Format::Zip, Cursor::new(bytes), access).unwrap_err(),
                    extract(Format::Zip, Cursor::new(bytes), access).unwrap_err(),
                ] {
                    assert_eq!(refused.limit(), Some(limit), "{refused}");
                    assert!(refused.to_string().contains(setting), "{refused}");
                }
            }
        }
    }
}

/// Where an entry says how its member is packed below AES.
fn method((entry, name): (usize, &str)) -> usize {
    entry + 46 + name.len() + 9
}

#[test]
fn what_is_cut_or_changed_ends_in_a_text_or_an_error() {
    let limits = Limits { zip_ratio: 2, input_bytes: 10_000, ..Limits::default() };
    for (bytes, password) in [(OLD, "heron"), (AES[1], LONG)] {
        let password = Secret::new(password);
        let access = Access { password: Some(&password), ..Access::from(&limits) };
        for at in (0..bytes.len()).step_by(3) {
            let mut changed = bytes.to_vec();
            changed[at] ^= 0xFF;
            for bytes in [&changed[..], &bytes[..at]] {
                let refused = extract(Format::Zip, Cursor::new(bytes), access).err();
                assert!(refused.is_none_or(|error| error.is_permanent()), "{at}");
            }
        }
    }
}
