//! What the targets share: limits that end an input soon, and a function that probes and extracts it.

use std::io::Cursor;
use svc_formats::{Format, Limits, archive, extract, images, members, probe, refusal, sections, tables, xlsx};

/// The limits are small, so that only a reader that ignores them takes long.
pub fn limits() -> Limits {
    Limits {
        input_bytes: 1 << 20,
        pages: 50,
        zip_members: 200,
        unpacked_bytes: 16 << 20,
        text_bytes: 4 << 20,
        headings: 1000,
        ..Limits::default()
    }
}

/// Probes and reads an input of a format; whatever it holds must be consistent.
pub fn read(format: Format, bytes: &[u8]) {
    let limits = limits();
    if let Ok(patterns) = probe(format, Cursor::new(bytes), &limits) {
        refusal(format, Cursor::new(bytes), &patterns);
    }
    if format == Format::Zip {
        archive(Cursor::new(bytes)).ok();
    }
    if format.has_members() {
        members(format, Cursor::new(bytes), &limits, &mut |_| Ok(())).ok();
    }
    if format.has_images() {
        images(format, Cursor::new(bytes), &limits, &mut |_| Ok(())).ok();
    }
    if format.has_sheets() {
        sheets(bytes, &limits);
    }
    let Ok(read) = extract(format, Cursor::new(bytes), &limits) else { return };
    assert!(read.text.len() as u64 <= limits.text_bytes && !read.text.contains('\0'));
    assert!(read.pages.iter().all(|page| read.text.get(page.start..page.end).is_some()));
    assert!(read.headings.iter().all(|heading| read.text.is_char_boundary(heading.start)));
    assert!(sections(&read).iter().all(|section| read.text.get(section.start..section.end).is_some()));
    let tables = tables(&read).tables;
    assert!(tables.iter().flat_map(|table| &table.ranges).all(|range| read.text.get(range.clone()).is_some()));
}

/// Reads the first sheets of a workbook in every way that the service does.
fn sheets(bytes: &[u8], limits: &Limits) {
    let Ok(workbook) = xlsx::workbook(Cursor::new(bytes), limits) else { return };
    xlsx::shared_strings(Cursor::new(bytes), limits, &mut |_| Ok(())).ok();
    let source = || xlsx::Source::from(Cursor::new(bytes));
    for index in (0..).take(workbook.sheets.len().min(3)) {
        xlsx::profile_sheet(source(), index, true, limits).ok();
        xlsx::records(source(), index, true, limits, &mut |_| Ok(())).ok();
        let Ok(range) = "A1:Z200".parse() else { continue };
        let Ok(read) = xlsx::cells(source(), index, range, limits) else { continue };
        assert!(read.rows.is_sorted_by(|one, next| one.row < next.row));
        assert!(read.rows.iter().flat_map(|row| &row.cells).all(|cell| range.contains(cell.cell)));
    }
}
