use super::*;
use crate::members::members as read;
use proptest::prelude::*;
use std::io::{Cursor, Write};
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

/// What became of each member: its name, and its bytes or why it was left out.
type Outcome = (String, Result<Vec<u8>, LeftOut>);

fn outcomes(bytes: &[u8], limits: &Limits) -> Vec<Outcome> {
    let (mut outcomes, mut open): (Vec<Outcome>, Option<(String, Vec<u8>)>) = (Vec::new(), None);
    let end = read(Format::Zip, Cursor::new(bytes), limits, &mut |part| {
        match part {
            MemberPart::Begin(head) => open = Some((head.name, Vec::new())),
            MemberPart::Bytes(bytes) => open.as_mut().unwrap().1.extend(bytes),
            MemberPart::End => outcomes.extend(open.take().map(|(name, bytes)| (name, Ok(bytes)))),
            MemberPart::LeftOut { name, reason } => {
                open = None;
                outcomes.push((name, Err(reason)));
            }
        }
        Ok(())
    });
    assert!(end.is_ok() || outcomes.is_empty(), "{end:?}");
    outcomes
}

fn zipped(files: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, bytes) in files {
        match name.ends_with('/') {
            true => writer.add_directory(*name, options).unwrap(),
            false => {
                writer.start_file(*name, options).unwrap();
                writer.write_all(bytes).unwrap();
            }
        }
    }
    writer.finish().unwrap().into_inner()
}

fn left_out(outcomes: &[Outcome]) -> Vec<(&str, LeftOut)> {
    outcomes.iter().filter_map(|(name, outcome)| Some((name.as_str(), outcome.as_ref().err().copied()?))).collect()
}

/// The place of the nth entry in the directory.
fn entry(bytes: &[u8], nth: usize) -> usize {
    memchr::memmem::find_iter(bytes, b"PK\x01\x02").nth(nth).unwrap()
}

#[test]
fn files_come_with_their_bytes_and_folders_do_not() {
    let large = b"0123456789".repeat(60_000);
    for method in [CompressionMethod::Stored, CompressionMethod::Deflated] {
        let bytes = zipped(&[("a/", b""), ("a/one.txt", b"one"), ("large.txt", &large), ("empty", b"")], method);
        let expected = [("a/one.txt", b"one".to_vec()), ("large.txt", large.clone()), ("empty", Vec::new())];
        let expected: Vec<Outcome> = expected.into_iter().map(|(name, bytes)| (name.to_owned(), Ok(bytes))).collect();
        assert!(outcomes(&bytes, &Limits::default()) == expected, "{method}");
        let shifted = [b"#!/bin/sh\n".repeat(9), bytes].concat();
        assert!(outcomes(&shifted, &Limits::default()) == expected, "{method} behind other bytes");
    }
}

#[test]
fn what_desktops_write_beside_files_is_no_file() {
    let desktop: [(&str, &[u8]); 5] = [
        ("__MACOSX/a/._one.txt", b"\0\x05\x16\x07"),
        ("a/._one.txt", b"\0\x05\x16\x07"),
        ("a/.DS_Store", b"\0\0\0\x01Bud1"),
        ("Thumbs.db", b"x"),
        ("a/desktop.ini", b"[x]"),
    ];
    let alone = zipped(&desktop, CompressionMethod::Stored);
    assert!(outcomes(&alone, &Limits::default()).is_empty());
    assert!(!probe(Cursor::new(&alone)).unwrap().holds(Pattern::HasMembers));
    let with_file = [&desktop[..], &[("a/one.txt", b"one".as_slice())]].concat();
    let with_file = zipped(&with_file, CompressionMethod::Deflated);
    assert_eq!(outcomes(&with_file, &Limits::default()), [("a/one.txt".to_owned(), Ok(b"one".to_vec()))]);
    assert!(probe(Cursor::new(&with_file)).unwrap().holds(Pattern::HasMembers));
    let document = zipped(&[("Index/Document.iwa", b"x"), ("preview.jpg", b"x")], CompressionMethod::Stored);
    assert!(probe(Cursor::new(&document)).unwrap().get(Pattern::HasMembers).is_none(), "it is one document");
}

#[test]
fn a_member_that_cannot_be_read_is_left_out_and_the_others_come() {
    let whole = zipped(&[("one", b"one"), ("two", b"two"), ("three", b"three")], CompressionMethod::Stored);
    let (second, third) = (entry(&whole, 1), entry(&whole, 2));
    let changes: [(&str, usize, &[u8], LeftOut); 6] = [
        ("a password", second + 8, &[1, 0], LeftOut::Encrypted),
        ("another method", second + 10, &[12, 0], LeftOut::Compression),
        ("another checksum", second + 16, &[0, 0, 0, 0], LeftOut::Damaged),
        ("a link", second + 38, &[0, 0, 0xFF, 0xA1], LeftOut::Link),
        ("no header there", second + 42, &[1, 0, 0, 0], LeftOut::Damaged),
        ("more bytes than there are", second + 20, &[0, 0, 0, 0x7F], LeftOut::Damaged),
    ];
    for (what, at, change, reason) in changes {
        let mut bytes = whole.clone();
        bytes[at..at + change.len()].copy_from_slice(change);
        let outcomes = outcomes(&bytes, &Limits::default());
        assert_eq!(left_out(&outcomes)[0], ("two", reason), "{what}");
        assert_eq!(outcomes[0], ("one".to_owned(), Ok(b"one".to_vec())), "{what}");
    }
    // The second and the third are the first once more.
    let mut bytes = whole.clone();
    for at in [second, third] {
        bytes[at + 16..at + 28].copy_from_slice(&whole[entry(&whole, 0) + 16..entry(&whole, 0) + 28]);
        bytes[at + 42..at + 46].copy_from_slice(&[0; 4]);
    }
    assert_eq!(
        left_out(&outcomes(&bytes, &Limits::default())),
        [("two", LeftOut::Overlap), ("three", LeftOut::Overlap)]
    );
}

#[test]
fn the_limits_hold_whatever_the_directory_claims() {
    let bomb = vec![0; 11 << 20];
    let bytes = zipped(&[("bomb", &bomb), ("small", b"small")], CompressionMethod::Deflated);
    let unlimited = outcomes(&bytes, &Limits::default());
    assert_eq!((left_out(&unlimited), unlimited.len()), (vec![("bomb", LeftOut::ZipRatio)], 2));
    let tight = Limits { member_bytes: 1 << 20, ..Limits::default() };
    let expected = [("bomb", LeftOut::MemberBytes), ("small", LeftOut::MemberBytes)];
    assert_eq!(left_out(&outcomes(&bytes, &tight)), expected);

    let files: Vec<(String, Vec<u8>)> = (0..20).map(|n| (format!("{n}"), vec![b'x'; 100])).collect();
    let files: Vec<(&str, &[u8])> = files.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])).collect();
    let bytes = zipped(&files, CompressionMethod::Deflated);
    let count = |limits| {
        let all = outcomes(&bytes, &limits);
        let reasons: Vec<_> = left_out(&all).into_iter().map(|(_, reason)| reason).collect();
        (all.len() - reasons.len(), reasons.first().copied())
    };
    assert_eq!(count(Limits { members: 7, ..Limits::default() }), (7, Some(LeftOut::Members)));
    assert_eq!(count(Limits { member_bytes: 1_050, ..Limits::default() }), (10, Some(LeftOut::MemberBytes)));
    assert_eq!(count(Limits { input_bytes: 99, ..Limits::default() }), (0, Some(LeftOut::InputBytes)));
}

#[test]
fn an_archive_without_a_directory_is_damaged() {
    let error = read(Format::Zip, Cursor::new(b"PK\x03\x04"), &Limits::default(), &mut |_| Ok(())).unwrap_err();
    assert_eq!(error.code(), "corrupt");
    let whole = zipped(&[("a.txt", &[b'x'; 5_000]), ("b.txt", b"two")], CompressionMethod::Stored);
    for cut in [4, 1_000, whole.len() - 23] {
        let error = probe(Cursor::new(&whole[..cut])).unwrap_err();
        assert_eq!((error.code(), error.to_string().contains("upload all of it")), ("corrupt", true), "{cut}: {error}");
    }
    assert_eq!(probe(Cursor::new(&whole)).unwrap().get(Pattern::HasMembers), Some(&true.into()));
    let drawing = zipped(
        &[("mimetype", b"application/vnd.oasis.opendocument.graphics"), ("content.xml", b"<a/>")],
        CompressionMethod::Stored,
    );
    assert_eq!(probe(Cursor::new(drawing)).unwrap(), Patterns::default(), "one document is no container of files");
    let folders = zipped(&[("a/", b"")], CompressionMethod::Stored);
    assert_eq!(probe(Cursor::new(&folders)).unwrap().get(Pattern::HasMembers), Some(&false.into()));
}

proptest! {
    #[test]
    fn damage_takes_no_reader_down_and_changes_no_bytes(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8), cut in any::<prop::sample::Index>()) {
        let texts: Vec<Vec<u8>> = (0u8..5).map(|n| vec![n; 50 * usize::from(n)]).collect();
        let names: Vec<String> = (0..5).map(|n| format!("{n}")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().zip(&texts).map(|(name, text)| (name.as_str(), &text[..])).collect();
        let mut bytes = zipped(&files, CompressionMethod::Deflated);
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cut.index(3) == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        let outcomes = outcomes(&bytes, &Limits { member_bytes: 10_000, ..Limits::default() });
        let given: usize = outcomes.iter().filter_map(|(_, outcome)| outcome.as_ref().ok()).map(Vec::len).sum();
        prop_assert!(given <= 10_000);
    }
}

#[test]
fn a_directory_that_breaks_off_before_its_first_file_is_no_empty_archive() {
    let whole = zipped(&[("a/", b""), ("a/one", b"one"), ("two", b"two")], CompressionMethod::Stored);
    for nth in [0, 1] {
        let mut bytes = whole.clone();
        bytes[entry(&whole, nth)] = b'x';
        assert_eq!(probe(Cursor::new(&bytes)).unwrap().get(Pattern::HasMembers), Some(&true.into()), "{nth}");
        assert_eq!(left_out(&outcomes(&bytes, &Limits::default())), [("", LeftOut::Damaged)], "{nth}");
    }
}
