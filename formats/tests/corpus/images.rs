//! Pictures of real files.

use super::*;
use std::collections::BTreeMap;
use svc_formats::{ImageHead, ImagePart, images};

/// The pictures of a file with the number of their bytes, and how many were left out for which reason.
type Read = (Vec<(ImageHead, usize)>, BTreeMap<&'static str, u64>);

fn read(entry: &Entry, format: Format) -> Result<Read, FormatError> {
    let (mut given, mut left_out) = (Vec::new(), BTreeMap::new());
    images(format, entry.open(), &Limits::default(), &mut |part| {
        match part {
            ImagePart::Begin(head) => given.push((head, 0)),
            ImagePart::Bytes(piece) => given.last_mut().unwrap().1 += piece.len(),
            ImagePart::End | ImagePart::Chart(_) => {}
            ImagePart::LeftOut { count, reason, .. } => *left_out.entry(reason.as_str()).or_default() += count,
        }
        Ok(())
    })?;
    Ok((given, left_out))
}

#[test]
fn pictures_of_every_file_are_read_if_its_text_is() {
    for entry in corpus("") {
        let Some(format) = entry.detection().format.filter(|format| format.has_images()) else { continue };
        let Ok(patterns) = entry.probe() else { continue };
        let (given, left_out) = match read(&entry, format) {
            Ok(read) => read,
            Err(error) => {
                assert!(entry.extract().is_err(), "{}: {error}", entry.name);
                continue;
            }
        };
        for (head, bytes) in &given {
            assert!(*bytes > 0 && head.mime.starts_with("image/"), "{}: {head:?}", entry.name);
            assert!(head.width.is_none_or(|width| width >= 16), "{}: {head:?}", entry.name);
            let told = [&head.name, &head.caption, &head.alt, &head.nearby];
            assert!(told.iter().all(|text| !text.contains(char::is_control)), "{}: {head:?}", entry.name);
        }
        // A probe looks at some of the pages of a PDF only.
        if format != Format::Pdf && !patterns.holds(Pattern::HasImages) {
            assert!(given.is_empty() && left_out.is_empty(), "{}: {given:?} {left_out:?}", entry.name);
        }
    }
}

#[test]
fn a_picture_of_a_real_file_has_its_size_its_page_and_what_its_author_said() {
    for entry in corpus("") {
        let (format, width, pages, alt) = match entry.name.as_str() {
            "docx/word_sample.docx" => (Format::Docx, 397, &[][..], "A cartoon duck holding a paper"),
            "pptx/powerpoint_with_image.pptx" => (Format::Pptx, 268, &[1][..], ""),
            _ => continue,
        };
        let (given, left_out) = read(&entry, format).unwrap();
        let [(head, _)] = given.as_slice() else { panic!("{}: {given:?} {left_out:?}", entry.name) };
        assert_eq!((head.mime.as_str(), head.width, head.pages.as_slice()), ("image/png", Some(width), pages));
        assert!(head.alt.starts_with(alt), "{head:?}");
    }
}

#[test]
fn a_chart_of_a_real_workbook_has_the_values_that_it_draws() {
    for entry in corpus("xlsx/xlsx_03_chartsheet.xlsx") {
        let mut tables = Vec::new();
        images(Format::Xlsx, entry.open(), &Limits::default(), &mut |part| {
            if let ImagePart::Chart(table) = part {
                tables.push(table);
            }
            Ok(())
        })
        .unwrap();
        let [chart] = tables.as_slice() else { panic!("{tables:?}") };
        let title = "Wild Duck Observations by Year";
        assert_eq!((chart.title.as_str(), chart.page, chart.table.rows.len()), (title, Some(2), 7));
        let with_axes = format!("{title} (Year, Number of Ducks)");
        assert_eq!(chart.table.rows[0][..3], [with_axes.as_str(), "Freshwater Ducks", "Saltwater Ducks"]);
        assert_eq!(chart.table.rows[1][..2], ["2019", "120"]);
    }
}
