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

/// A chart part with a title and the XML of its plots.
pub(crate) fn chart(title: &str, plots: &str) -> String {
    format!(
        r#"<c:chartSpace xmlns:c="c" xmlns:a="a"><c:chart><c:title><c:tx><c:rich><a:bodyPr/><a:p><a:pPr/><a:r><a:t>{title}</a:t></a:r></a:p></c:rich></c:tx></c:title><c:plotArea><c:layout/>{plots}<c:catAx><c:axId val="1"/></c:catAx></c:plotArea></c:chart></c:chartSpace>"#
    )
}

/// An axis with a title, for the plots of a chart.
pub(crate) fn axis(kind: &str, title: &str) -> String {
    format!(
        r#"<c:{kind}><c:axId val="1"/><c:delete val="0"/><c:title><c:tx><c:rich><a:bodyPr/><a:p><a:r><a:t>{title}</a:t></a:r></a:p></c:rich></c:tx></c:title><c:numFmt formatCode="General"/></c:{kind}>"#
    )
}

/// A series of a chart of bars, lines or slices.
pub(crate) fn series(name: &str, categories: &[&str], values: &[&str]) -> String {
    format!(
        r#"<c:ser><c:tx><c:strRef><c:f>Sheet1!$B$1</c:f><c:strCache>{}</c:strCache></c:strRef></c:tx><c:cat><c:strRef><c:strCache>{}</c:strCache></c:strRef></c:cat><c:val><c:numRef><c:numCache><c:formatCode>General</c:formatCode>{}</c:numCache></c:numRef></c:val></c:ser>"#,
        points(&[name]),
        points(categories),
        points(values)
    )
}

/// Points of a cache, from the first on; an empty text is left out.
pub(crate) fn points(values: &[&str]) -> String {
    let point = |(place, value): (usize, &&str)| format!(r#"<c:pt idx="{place}"><c:v>{value}</c:v></c:pt>"#);
    let kept = values.iter().enumerate().filter(|(_, value)| !value.is_empty());
    format!(r#"<c:ptCount val="{}"/>{}"#, values.len(), kept.map(point).collect::<String>())
}
