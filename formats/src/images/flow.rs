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
    /// The last paragraph with a text.
    before: String,
    /// It is a caption, and no picture above it has it.
    is_free: bool,
    /// Captions stand below their pictures, as one did.
    is_below: bool,
    /// Pictures that wait for the text after them, each with the caption above it.
    waiting: Vec<(Shown, Option<String>)>,
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
        // Prose that begins with the name of a picture is no caption above one.
        let mut is_free = is_caption && (is_caption_style || is_label(&text));
        if !text.is_empty() && pictures.is_empty() {
            let is_taken = self.follow(&text, is_caption);
            self.is_below |= is_taken;
            is_free &= !is_taken;
        }
        let above = (self.is_free && !self.is_below && text.is_empty()).then(|| self.before.clone());
        let has_pictures = !pictures.is_empty();
        for Reference { name, alt } in pictures {
            let nearby = if text.is_empty() || is_caption { &self.before } else { &text };
            let shown = Shown {
                name,
                pages: page.into_iter().collect(),
                caption: if is_caption { cut(&text, CAPTION_CHARACTERS) } else { String::new() },
                alt: one_line(&alt, CAPTION_CHARACTERS),
                nearby: cut(nearby, NEARBY_CHARACTERS),
            };
            if self.waiting.len() == MOST_WAITING {
                let (first, above) = self.waiting.remove(0);
                self.gallery.add(captioned(first, above));
            }
            self.waiting.push((shown, above.clone()));
        }
        if !text.is_empty() {
            (self.before, self.is_free) = (text, is_free && !has_pictures);
        }
    }

    /// The page ends, so that what follows is beside no picture before it.
    pub(crate) fn end_page(&mut self) {
        self.settle();
        self.before.clear();
        self.is_free = false;
    }

    /// Gives the pictures that wait what stands after them; returns whether one has it as its caption.
    fn follow(&mut self, text: &str, is_caption: bool) -> bool {
        let mut is_taken = false;
        for (shown, above) in &mut self.waiting {
            if is_caption && shown.caption.is_empty() && above.is_none() {
                shown.caption = cut(text, CAPTION_CHARACTERS);
                is_taken = true;
            } else if !is_caption && (shown.nearby.is_empty() || above.is_some()) {
                shown.nearby = cut(text, NEARBY_CHARACTERS);
            }
        }
        self.settle();
        is_taken
    }

    fn settle(&mut self) {
        for (shown, above) in std::mem::take(&mut self.waiting) {
            self.gallery.add(captioned(shown, above));
        }
    }

    pub(crate) fn finish(mut self) -> Gallery {
        self.settle();
        self.gallery
    }
}

/// A picture with the caption above it, which then is not the text beside it.
fn captioned(mut shown: Shown, above: Option<String>) -> Shown {
    if let Some(above) = above {
        if shown.nearby == cut(&above, NEARBY_CHARACTERS) {
            shown.nearby.clear();
        }
        shown.caption = cut(&above, CAPTION_CHARACTERS);
    }
    shown
}

/// Whether nothing follows the name and the number with which a caption begins, or something that is set off from them.
fn is_label(text: &str) -> bool {
    let rest = text.trim_start_matches(char::is_alphabetic).trim_start_matches(['.', ' ']);
    // A number may have parts, and a letter before or after it.
    let rest = rest.trim_start_matches(|c: char| c.is_alphanumeric() || matches!(c, '-' | '.'));
    let label = &text[..text.len() - rest.len()];
    rest.trim().is_empty()
        || label.ends_with(['.', '-'])
        || rest.trim_start().starts_with([':', '–', '—', '-', '|', ')'])
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
    fn a_caption_above_is_that_of_the_picture_below_it_unless_captions_stand_below() {
        let of = |paragraphs: &[&str]| -> Vec<(String, String)> {
            let mut flow = Flow::default();
            for (at, text) in paragraphs.iter().enumerate() {
                let pictures = if text.is_empty() { picture(&format!("{at}.png"), "") } else { Vec::new() };
                flow.paragraph(text, false, None, pictures);
            }
            flow.finish().shown.into_iter().map(|shown| (shown.caption, shown.nearby)).collect()
        };
        let told = |caption: &str, nearby: &str| (caption.to_owned(), nearby.to_owned());
        let (mill, pump) = ("Figure 1: The mill", "Figure 2: The pump");
        let above = of(&["It is old.", mill, "", "It stands still.", pump, ""]);
        assert_eq!(above, [told(mill, "It stands still."), told(pump, "")]);
        assert_eq!(of(&[mill, "", pump, ""]), [told(mill, ""), told(pump, "")]);
        let below = of(&["It is old.", "", mill, "", pump]);
        assert_eq!(below, [told(mill, "It is old."), told(pump, mill)]);
        let prose = "Figure 1 shows the mill.";
        assert_eq!(of(&[prose, "", mill]), [told(mill, prose)]);
        // A caption of what is no picture is not that of the next one.
        assert_eq!(of(&["", mill, "It is old.", pump, "", "Figure 3. The weir"])[1].0, "Figure 3. The weir");
    }

    #[test]
    fn a_line_is_cut_by_characters_and_has_no_control_characters() {
        assert_eq!(one_line(" a\u{7}b\n\tc ", 100), "a b c");
        assert_eq!(one_line("äöü ß", 4), "äöü");
        assert_eq!(one_line("äöü ß", 2), "äö");
    }
}
