use std::cell::Cell;

use proptest::prelude::*;

use super::*;

/// A word is a token, and so is each character of a script without blanks.
fn words(text: &str) -> usize {
    text.split_whitespace().map(|word| if word.is_ascii() { 1 } else { word.chars().count() }).sum()
}

fn of<'a>(text: &'a str, options: &ChunkOptions) -> Vec<&'a str> {
    chunk(text, 0..text.len(), options, &words).into_iter().map(|chunk| &text[chunk.start..chunk.end]).collect()
}

fn small(max_tokens: usize) -> ChunkOptions {
    ChunkOptions { max_tokens, min_chunk_length: 0, ..ChunkOptions::default() }
}

/// What every chunking promises, whatever the text.
fn check(text: &str, range: Range<usize>, options: &ChunkOptions) {
    let chunks = chunk(text, range.clone(), options, &words);
    let mut at = range.start;
    for chunk in &chunks {
        assert!(text[at..chunk.start].chars().all(char::is_whitespace), "nothing but white space between chunks");
        let slice = &text[chunk.start..chunk.end];
        assert!(!slice.is_empty() && slice.trim() == slice);
        assert_eq!(slice.chars().count(), chunk.characters);
        assert!(chunk.characters <= options.max_chars, "{} characters", chunk.characters);
        at = chunk.end;
    }
    assert!(text[at..range.end].chars().all(char::is_whitespace));
}

#[test]
fn sentences_are_packed_whole() {
    let text = "One two three. Four five six. Seven eight nine ten. Eleven.";
    assert_eq!(of(text, &small(6)), ["One two three. Four five six.", "Seven eight nine ten. Eleven."]);
}

#[test]
fn a_heading_stays_with_what_follows() {
    let text = "Before it. Also before.\n\n# A heading\n\n## Another\n\nIts text is here. And more of it here.";
    assert_eq!(
        of(text, &small(9)),
        ["Before it. Also before.", "# A heading\n\n## Another\n\nIts text is here.", "And more of it here."]
    );
    let long = format!("# Title\n\n{}.", "word ".repeat(30).trim_end());
    let chunks = of(&long, &small(10));
    assert!(chunks[0].starts_with("# Title\n\nword word"), "{chunks:?}");
}

#[test]
fn code_and_tables_stay_whole_where_they_fit() {
    let table = "| a | b |\n| - | - |\n| c | d |";
    let code = "```\nlet a = 1. Then.\n\nlet b = 2\n```";
    let text = format!("Some words before the table come.\n\n{table}\n\n{code}");
    assert_eq!(of(&text, &small(15)), ["Some words before the table come.", table, code]);
    let rows = "| cell | cell |\n".repeat(40);
    assert!(
        of(&rows, &small(20)).iter().all(|chunk| chunk.starts_with('|') && chunk.ends_with('|')),
        "cut between rows"
    );
}

#[test]
fn short_chunks_join_a_neighbour() {
    let options = ChunkOptions { max_tokens: 4, min_chunk_length: 10, ..ChunkOptions::default() };
    assert_eq!(of("One two three four. No.", &options), ["One two three four. No."]);
    assert_eq!(of("No.\n\n# Heading two", &options), ["No.\n\n# Heading two"]);
}

#[test]
fn each_sentence_is_counted_once() {
    let text = "A sentence of six words here. ".repeat(500);
    let counted = Cell::new(0);
    let chunks = chunk(&text, 0..text.len(), &ChunkOptions::default(), &|piece: &str| {
        counted.set(counted.get() + piece.len());
        words(piece)
    });
    assert!(counted.get() <= text.len());
    assert!(chunks.iter().all(|chunk| chunk.tokens <= 120));
}

#[test]
fn lines_of_megabytes_cost_their_length() {
    for unit in ["a", "漢", "ไทย", "word ", "e\u{301}", ". ", " ", "\u{301}", "# ", "|", "`", "- x\n"] {
        let text = unit.repeat((1 << 20) / unit.len());
        let counted = Cell::new(0);
        let options = ChunkOptions::default();
        let counter = |piece: &str| {
            counted.set(counted.get() + piece.len());
            piece.chars().count().div_ceil(4)
        };
        let chunks = chunk(&text, 0..text.len(), &options, &counter);
        assert!(chunks.iter().all(|chunk| chunk.characters <= options.max_chars));
        assert!(counted.get() <= 8 * text.len(), "{unit:?}: {} bytes counted", counted.get());
    }
}

#[test]
fn a_grapheme_is_not_cut() {
    let text = "e\u{301}".repeat(3000);
    for chunk in
        chunk(&text, 0..text.len(), &ChunkOptions { max_chars: 101, ..small(1000) }, &|piece: &str| piece.len() / 9)
    {
        assert!(text[chunk.start..].starts_with('e'));
    }
}

#[test]
fn a_range_off_the_text_is_drawn_in() {
    assert!(chunk("é", 1..1, &small(5), &words).is_empty());
    assert_eq!(chunk("aé b", 2..900, &small(5), &words).len(), 1);
    #[expect(clippy::reversed_empty_ranges, reason = "the caller's mistake is what is tested")]
    let backwards = chunk("abc", 2..1, &small(5), &words);
    assert!(backwards.is_empty());
}

proptest! {
    #[test]
    fn any_text_is_cut_exactly(
        text in "([a-zé漢ก.!? \n#|`~-]|\u{301}|👩‍👩‍👧|\n\n|```\n|# |[A-Z][a-z]{1,9}\\. ){0,200}",
        max_tokens in 1usize..40, min_chunk_length in 0usize..30, max_chars in 1usize..200,
    ) {
        let options = ChunkOptions { max_tokens, min_chunk_length, max_chars, ..ChunkOptions::default() };
        check(&text, 0..text.len(), &options);
    }

    #[test]
    fn any_characters_are_cut_exactly(text in any::<String>(), max_chars in 1usize..50) {
        let text = text.replace('\0', "");
        let start = text.ceil_char_boundary(text.len() / 3);
        check(&text, start..text.len(), &ChunkOptions { max_chars, ..ChunkOptions::default() });
    }
}
