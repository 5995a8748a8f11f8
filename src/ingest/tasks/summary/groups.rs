//! Puts texts together into groups that a language model can read in one call, in their order.
use svc_ranking::sentences;

/// The fewest bytes of a full group: a title takes a quarter of it.
const LEAST: usize = 256;

/// Texts on their way into groups.
pub struct Groups {
    /// The most bytes of a group.
    most: usize,
    group: String,
    /// The title under which the group goes on.
    title: String,
}

impl Groups {
    /// Makes groups of at most so many bytes, or of [`LEAST`].
    pub fn new(most: usize) -> Groups {
        Groups { most: most.max(LEAST), group: String::new(), title: String::new() }
    }

    /// Adds a text under its title; returns the groups that are full. A text that is longer than a group goes on in the next one.
    pub fn add(&mut self, title: &str, text: &str) -> Vec<String> {
        let title = &title[..title.floor_char_boundary(self.most / 4)];
        let (mut full, mut rest) = (Vec::new(), text.trim());
        while !rest.is_empty() {
            // A chunk may begin with its heading.
            let is_said = rest.lines().next().is_some_and(|line| line.trim_start_matches('#').trim() == title)
                || title.is_empty();
            let title_line = if is_said { String::new() } else { format!("{title}\n") };
            let head = match (self.group.is_empty(), self.title == title) {
                (true, _) => title_line,
                (false, true) => "\n\n".to_owned(),
                (false, false) => format!("\n\n{title_line}"),
            };
            let room = self.most.saturating_sub(self.group.len() + head.len());
            if rest.len() > room && !self.group.is_empty() {
                full.push(std::mem::take(&mut self.group));
                continue;
            }
            let piece = beginning(rest, room);
            self.group.push_str(&head);
            self.group.push_str(piece);
            title.clone_into(&mut self.title);
            rest = rest[piece.len()..].trim_start();
        }
        full
    }

    /// Makes the next groups smaller.
    pub fn limit(&mut self, most: usize) {
        self.most = self.most.min(most.max(LEAST));
    }

    /// The last group, if there is one.
    pub fn end(self) -> Option<String> {
        Some(self.group).filter(|group| !group.is_empty())
    }
}

/// As many whole sentences at the beginning of a text as have at most so many bytes; where there is none, as many words or letters.
pub fn beginning(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let room = &text[..text.floor_char_boundary(most)];
    // The last sentence may go on behind the room.
    let end = sentences(room).last().map_or(0, |last| last.as_ptr() as usize - room.as_ptr() as usize);
    let whole = room[..end].trim_end();
    if !whole.is_empty() {
        return whole;
    }
    match room.rfind(char::is_whitespace).map(|space| room[..space].trim_end()) {
        Some(words) if !words.is_empty() => words,
        Some(_) | None if !room.is_empty() => room,
        Some(_) | None => &text[..text.chars().next().map_or(0, char::len_utf8)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(most: usize, texts: &[(String, String)]) -> Vec<String> {
        let mut groups = Groups::new(most);
        let mut all: Vec<String> = texts.iter().flat_map(|(title, text)| groups.add(title, text)).collect();
        all.extend(groups.end());
        all
    }

    #[test]
    fn a_title_is_said_once_for_the_texts_under_it_and_again_in_the_next_group() {
        let texts = [("A", "One."), ("A", "Two."), ("B", "Three.")];
        let texts = texts.map(|(title, text)| (title.to_owned(), text.to_owned()));
        assert_eq!(all(256, &texts), ["A\nOne.\n\nTwo.\n\nB\nThree."]);
        let long = [("A".to_owned(), "A sentence of some forty letters stands here. ".repeat(12))];
        let groups = all(256, &long);
        assert!(
            groups.len() == 3
                && groups.iter().all(|group| group.starts_with("A\nA sentence") && group.ends_with("here."))
        );
    }

    #[test]
    fn the_beginning_ends_at_a_sentence_a_word_or_a_letter() {
        let text = "This sentence has exactly fifty one letters, so be it. This is the second one, and it is as long.";
        assert_eq!(beginning(text, 80), "This sentence has exactly fifty one letters, so be it.");
        assert_eq!(beginning(text, 20), "This sentence has");
        assert_eq!(beginning("ééééé", 5), "éé");
        assert_eq!(beginning("ééééé", 1), "é");
        assert_eq!(beginning(text, 500), text);
    }

    proptest! {
        #[test]
        fn groups_have_every_letter_in_order_and_fit(
            texts in prop::collection::vec(("[a-z]{1,9}", "[a-zé. \n]{0,900}"), 0..12), most in 256usize..600,
        ) {
            let groups = all(most, &texts);
            prop_assert!(groups.iter().all(|group| group.len() <= most && !group.is_empty()));
            // Titles are capital letters here, so that they can be told apart from the texts.
            let texts: Vec<(String, String)> = texts.into_iter().map(|(title, text)| (title.to_uppercase(), text)).collect();
            let of_texts = |text: &str| text.chars().filter(|c| c.is_lowercase() || *c == '.').collect::<String>();
            let read: String = all(most, &texts).iter().map(|group| of_texts(group)).collect();
            prop_assert_eq!(read, texts.iter().map(|(_, text)| of_texts(text)).collect::<String>());
        }
    }
}
