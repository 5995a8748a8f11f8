//! Files of Office 97 that are made by hand, for the tests of this crate and of the service.

use std::io::{Cursor, Write};

/// A compound file with these streams.
pub fn compound(streams: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    for (name, bytes) in streams {
        file.create_stream(name).unwrap().write_all(bytes).unwrap();
    }
    file.flush().unwrap();
    file.into_inner().into_inner()
}

/// A document of Word 97 with nothing but its text, whose characters have one byte.
pub fn old_document(text: &str) -> Vec<u8> {
    let text_at = 0x400u32;
    let mut main = vec![0; text_at as usize];
    main[..4].copy_from_slice(&[0xEC, 0xA5, 0xC1, 0]);
    main[0x4C..0x50].copy_from_slice(&(text.len() as u32).to_le_bytes());
    main.extend(text.as_bytes());
    // The place of the text is doubled, and marked.
    let mut pieces = vec![2, 16, 0, 0, 0];
    pieces.extend([0, text.len() as u32].map(u32::to_le_bytes).concat());
    pieces.extend([0, 0]);
    pieces.extend(((text_at * 2) | 0x4000_0000).to_le_bytes());
    pieces.extend([0, 0]);
    main[0x1A6..0x1AA].copy_from_slice(&(pieces.len() as u32).to_le_bytes());
    compound(&[("/WordDocument", &main), ("/0Table", &pieces)])
}

/// A presentation of PowerPoint 97 with one slide, whose title and body its outline has.
pub fn old_presentation(title: &str, body: &str) -> Vec<u8> {
    let record = |kind: u16, body: &[u8]| {
        [&[0x0F_u8, 0][..], &kind.to_le_bytes(), &(body.len() as u32).to_le_bytes(), body].concat()
    };
    let atom = |kind: u16, numbers: &[u32]| {
        record(kind, &numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>())
    };
    let mut outline = atom(0x03F3, &[2, 0, 0, 256, 0]);
    for (kind, text) in [(0, title), (1, body)] {
        outline.extend(atom(0x0F9F, &[kind]));
        outline.extend(record(0x0FA8, text.as_bytes()));
    }
    let mut stream = record(0x03E8, &record(0x0FF0, &outline));
    let slide_at = stream.len() as u32;
    stream.extend(record(0x03EE, &[]));
    let directory_at = stream.len() as u32;
    stream.extend(atom(0x1772, &[0x0020_0001, 0, slide_at]));
    let edit_at = stream.len() as u32;
    stream.extend(atom(0x0FF5, &[0, 0, 0, directory_at, 1, 0, 0]));
    let user = atom(0x0FF6, &[0x14, 0xE391_C05F, edit_at]);
    compound(&[("/Current User", &user), ("/PowerPoint Document", &stream)])
}
