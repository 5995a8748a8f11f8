//! pptx: slides, titles, notes and tables.

use super::*;

#[test]
fn slides_are_those_of_the_references() {
    for entry in corpus("pptx/") {
        let (name, expect) = (&entry.name, &entry.expect);
        let read = entry.extract().unwrap_or_else(|error| panic!("{name}: {error}"));
        let slides = expect["slides"].as_array().unwrap();
        assert_eq!(read.page_kind, PageKind::Slide, "{name}");
        assert_eq!(read.pages.len() as u64, expect["slide_count"], "{name}");
        assert_eq!(read.pages.len(), slides.len(), "{name}");
        assert_eq!(read.facts["promoted_title_count"], expect["promoted_title_count"], "{name}");
        let comments = read.facts.get("pptx.comments").map_or(0, |comments| comments.as_array().unwrap().len());
        assert_eq!(comments > 0, expect["has_comments"] == true, "{name}");
        for (page, slide) in read.pages.iter().zip(slides) {
            let name = format!("{name} slide {}", page.number);
            let text = &read.text[page.start..page.end];
            let (shown, notes) =
                text.split_once("\n\n## Notes\n\n").map_or((text, None), |(shown, notes)| (shown, Some(notes)));
            let mut headings = read.headings.iter().filter(|heading| (page.start..page.end).contains(&heading.start));
            let heading = headings.next().unwrap();
            assert_eq!((heading.level, heading.start), (1, page.start), "{name}");
            let title = ["title_placeholder", "first_text_line_if_promoted"].iter().find_map(|key| slide[key].as_str());
            let untitled = format!("Slide {}", page.number);
            assert_eq!(bare(&heading.title), bare(title.unwrap_or(&untitled)), "{name}");
            let notes_heading = headings.next().map(|heading| (heading.level, heading.title.as_str()));
            assert_eq!(notes_heading, slide["notes"].as_str().map(|_| (2, "Notes")), "{name}");
            assert_eq!(notes.map(bare), slide["notes"].as_str().map(bare), "{name}");
            let delimiters = shown.lines().filter(|line| line.starts_with("| ---")).count() as u64;
            assert_eq!(delimiters, slide["tables"], "{name}");
            // The heading is the first line, if there is any text.
            let lines = shown.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('|')).count() as u64;
            assert_eq!(lines - u64::from(title.is_none()), slide["text_lines"], "{name}: {shown}");
        }
    }
}
