//! Packages built by hand, for tests.

use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

/// A package with members by name and bytes.
pub(crate) fn package<B: AsRef<[u8]>>(members: impl IntoIterator<Item = (impl AsRef<str>, B)>) -> Cursor<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        writer.start_file(name.as_ref(), SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes.as_ref()).unwrap();
    }
    writer.finish().unwrap()
}

/// A relationships part; each entry is an id, a kind and a target.
pub(crate) fn relationships(entries: &[(&str, &str, &str)]) -> String {
    let entries = entries.iter().map(|(id, kind, target)| {
        format!(r#"<Relationship Id="{id}" Type="http://example.org/rel/{kind}" Target="{target}"/>"#)
    });
    format!("<Relationships>{}</Relationships>", entries.collect::<String>())
}
