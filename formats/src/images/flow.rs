//! Pictures in a flow of paragraphs, each with the text around it.

use super::{Gallery, Shown};

/// A longer text is cut.
const CAPTION_CHARACTERS: usize = 500;
const NEARBY_CHARACTERS: usize = 400;
/// How many pictures may wait for the text after them.
const MOST_WAITING: usize = 64;
/// The words with which captions begin, before their number.
const CAPTIONS: [&str; 22] = [
    "figure",
    "fig",
    "figura",
    "figuur",
    "figur",
    "image",
    "picture",
    "photo",
    "photograph",
    "illustration",
    "plate",
    "diagram",
    "chart",
    "graph",
    "scheme",
    "exhibit",
    "map",
    "abbildung",
    "abb",
    "bild",
    "foto",
    "grafik",
];

/// A reference to a picture within a paragraph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reference {
    pub name: String,
    pub alt: String,
}

/// Takes the paragraphs of a text in their order.
#[derive(Debug, Default)]
pub(crate) struct Flow {
    gallery: Gallery,
    /// The last paragraph with a text, and whether it is a caption.
    before: (String, bool),
    waiting: Vec<Shown>,
}

impl Flow {
    /// Takes a paragraph: its text, whether its style says that it is a caption, the page that it is on, and its pictures.
    pub(crate) fn paragraph(
        &mut self,
        text: &str,
        is_caption_style: bool,
        page: Option<u32>,
        pictures: Vec<Reference>,
    ) {
        let text = one_line(text, NEARBY_CHARACTERS.max(CAPTION_CHARACTERS));
        let is_caption = !text.is_empty() && (is_caption_style || is_caption(&text));
        if !text.is_empty() && pictures.is_empty() {
            self.follow(&text, is_caption);
        }
        for Reference { name, alt } in pictures {
            let nearby = if text.is_empty() || is_caption { &self.before.0 } else { &text };
            let shown = Shown {
                name,
                pages: page.into_iter().collect(),
                caption: if is_caption { cut(&text, CAPTION_CHARACTERS) } else { String::new() },
                alt: one_line(&alt, CAPTION_CHARACTERS),
                nearby: cut(nearby, NEARBY_CHARACTERS),
            };
            if self.waiting.len() == MOST_WAITING {
                let first = self.waiting.remove(0);
                self.gallery.add(first);
            }
            self.waiting.push(shown);
        }
        if !text.is_empty() {
            self.before = (text, is_caption);
        }
    }

    /// The page ends, so that what follows is beside no picture before it.
    pub(crate) fn end_page(&mut self) {
        self.settle();
        self.before = Default::default();
    }

    /// Gives the pictures that wait what stands after them.
    fn follow(&mut self, text: &str, is_caption: bool) {
        for shown in &mut self.waiting {
            if is_caption && shown.caption.is_empty() {
                shown.caption = cut(text, CAPTION_CHARACTERS);
            } else if shown.nearby.is_empty() {
                shown.nearby = cut(text, NEARBY_CHARACTERS);
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        for shown in std::mem::take(&mut self.waiting) {
            self.gallery.add(shown);
        }
    }

    pub(crate) fn finish(mut self) -> Gallery {
        self.settle();
        self.gallery
    }
}

/// Whether a text is a caption by its beginning: a word such as `Figure`, and a number.
pub(crate) fn is_caption(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let Some(first) = words.next() else { return false };
    let letters: String =
        first.chars().take_while(|c| c.is_alphabetic()).flat_map(char::to_lowercase).take(20).collect();
    let rest = first[first.find(|c: char| !c.is_alphabetic()).unwrap_or(first.len())..].trim_start_matches('.');
    let number = if rest.is_empty() { words.next().unwrap_or_default() } else { rest };
    CAPTIONS.contains(&letters.as_str()) && number.chars().take(4).any(|c| c.is_ascii_digit())
}

/// A text in one line without control characters, of at most so many characters.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut count = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if count > 0 {
            line.push(' ');
            count += 1;
        }
        for character in word.chars() {
            if count >= most {
                line.truncate(line.trim_end().len());
                return line;
            }
            line.push(character);
            count += 1;
        }
    }
    line
}

fn cut(line: &str, most: usize) -> String {
    line.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(name: &str, alt: &str) -> Vec<Reference> {
        vec![Reference { name: name.to_owned(), alt: alt.to_owned() }]
    }

    #[test]
    fn a_caption_begins_with_its_word_and_number() {
        for caption in ["Figure 3: The mill", "Fig. 3 shows", "FIG.4", "Abb. 12", "Abbildung A1", "Photo 7."] {
            assert!(is_caption(caption), "{caption}");
        }
        for other in ["Figures were cut", "Figure it out", "Image", "The figure 3", "", "Figment 3"] {
            assert!(!is_caption(other), "{other}");
        }
    }

    #[test]
    fn a_picture_has_the_text_beside_it_and_its_caption_above_or_below() {
        let mut flow = Flow::default();
        flow.paragraph("The mill stands\nat the pond.", false, None, Vec::new());
        flow.paragraph("", false, None, picture("mill.png", "A mill"));
        flow.paragraph("Figure 1: The mill", false, None, Vec::new());
        flow.paragraph("Nothing else is said.", false, None, Vec::new());
        flow.paragraph("Beside the pump", false, None, picture("pump.png", ""));
        flow.paragraph("", false, None, picture("mill.png", "Other words"));
        let shown = flow.finish().shown;
        let told: Vec<_> = shown.iter().map(|one| (&*one.name, &*one.caption, &*one.alt, &*one.nearby)).collect();
        assert_eq!(
            told,
            [
                ("mill.png", "Figure 1: The mill", "A mill", "The mill stands at the pond."),
                ("pump.png", "", "", "Beside the pump")
            ]
        );
    }

    #[test]
    fn a_line_is_cut_by_characters_and_has_no_control_characters() {
        assert_eq!(one_line(" a\u{7}b\n\tc ", 100), "a b c");
        assert_eq!(one_line("äöü ß", 4), "äöü");
        assert_eq!(one_line("äöü ß", 2), "äö");
    }
}
