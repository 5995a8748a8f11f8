use super::*;
use proptest::prelude::*;
use std::cell::Cell;
use unicode_segmentation::UnicodeSegmentation;

/// Counts each word as a token, and each character of a script without blanks.
fn words(text: &str) -> usize {
    text.split_whitespace().map(|word| if word.is_ascii() { 1 } else { word.chars().count() }).sum()
}

fn of<'a>(text: &'a str, options: &ChunkOptions) -> Vec<&'a str> {
    chunk(text, 0..text.len(), options, &words).into_iter().map(|chunk| &text[chunk.start..chunk.end]).collect()
}

fn small(max_tokens: usize) -> ChunkOptions {
    ChunkOptions { max_tokens, min_chunk_length: 0, ..ChunkOptions::default() }
}

/// Checks what every chunking promises, whatever the text and the tokenizer.
fn check(text: &str, range: Range<usize>, options: &ChunkOptions, tokens: &dyn TokenCounter) {
    let chunks = chunk(text, range.clone(), options, tokens);
    let mut at = range.start;
    for chunk in &chunks {
        assert!(text[at..chunk.start].chars().all(char::is_whitespace), "nothing but white space between chunks");
        let slice = &text[chunk.start..chunk.end];
        assert!(!slice.trim().is_empty() && slice.trim_end() == slice);
        let content = chunk.content(text);
        assert!(content.ends_with(slice));
        assert_eq!(content.chars().count(), chunk.characters);
        assert!(chunk.characters <= options.max_chars, "{} characters", chunk.characters);
        assert_eq!(tokens.count(&content), chunk.tokens, "{content:?}");
        let graphemes = slice.graphemes(true).count();
        assert!(chunk.tokens <= options.max_tokens || graphemes == 1, "{} tokens: {content:?}", chunk.tokens);
        at = chunk.end;
    }
    assert!(text[at..range.end].chars().all(char::is_whitespace));
    // Chunks begin and end where a reader sees a character begin and end.
    let cut_marks = |at: &usize| !split::is_boundary(&text[range.start..range.end], at - range.start);
    let long = text[range.clone()].graphemes(true).any(|grapheme| {
        grapheme.chars().count() >= options.max_chars.min(64) || tokens.count(grapheme) > options.max_tokens
    });
    assert!(
        long || !chunks.iter().flat_map(|chunk| [chunk.start, chunk.end]).any(|at| cut_marks(&at)),
        "a grapheme is cut"
    );
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
fn code_tables_and_items_stay_whole_where_they_fit() {
    let table = "| a | b |\n| - | - |\n| c | d |";
    let code = "```\nlet a = 1. Then.\n\nlet b = 2\n```";
    let text = format!("Some words before the table come.\n\n{table}\n\n{code}");
    assert_eq!(of(&text, &small(15)), ["Some words before the table come.", table, code]);
    let items = "- One item. It has two sentences.\n- Another item. And two more words.";
    assert_eq!(of(items, &small(9)), ["- One item. It has two sentences.", "- Another item. And two more words."]);
    let code = format!("```\n{}```", "let a = 1;\n".repeat(20));
    assert!(of(&code, &small(18)).iter().all(|chunk| chunk.ends_with([';', '`'])), "cut between lines");
}

#[test]
fn a_table_over_the_cap_is_cut_by_rows_and_says_its_header_again() {
    let header = "| name | amount |\n| ---- | -----: |";
    let rows: Vec<String> = (0..30).map(|row| format!("| row {row} | {row} |")).collect();
    let text = format!("# Sums\n\n{header}\n{}\n\nAfter it.", rows.join("\n"));
    let chunks = chunk(&text, 0..text.len(), &small(30), &words);
    assert!(text[chunks[0].start..].starts_with("# Sums\n\n| name") && chunks[0].prefix.is_empty());
    for chunk in &chunks[1..] {
        assert_eq!(&text[chunk.prefix.clone()], header);
        assert!(chunk.content(&text).starts_with(&format!("{header}\n| row ")), "{}", chunk.content(&text));
    }
    let text: String = chunks.iter().map(|chunk| &text[chunk.start..chunk.end]).collect::<Vec<_>>().join("\n");
    assert!(rows.iter().all(|row| text.lines().any(|line| line == row)), "no row is cut or lost");
    // A header as large as a chunk appears once.
    let wide = format!("| {} |\n| - |\n{}", "word ".repeat(20), "| a |\n".repeat(30));
    assert!(chunk(&wide, 0..wide.len(), &small(30), &words).iter().all(|chunk| chunk.prefix.is_empty()));
}

#[test]
fn an_introduction_goes_with_what_it_introduces() {
    let text = "Words that fill it up. These are the two:\n\n- one item of six words\n- two";
    assert_eq!(
        of(text, &small(12)),
        ["Words that fill it up.", "These are the two:\n\n- one item of six words\n- two"]
    );
}

#[test]
fn short_chunks_join_a_neighbour_within_the_caps() {
    let options = ChunkOptions { max_tokens: 5, min_chunk_length: 6, ..ChunkOptions::default() };
    assert_eq!(of("One two. Three four five. No.", &options), ["One two.", "Three four five. No."]);
    let tight = ChunkOptions { max_tokens: 4, ..options.clone() };
    assert_eq!(of("One two three four. No.", &tight), ["One two three four.", "No."], "the cap is the cap");
    assert_eq!(of("No.\n\n# Heading two", &options), ["No.\n\n# Heading two"]);
}

#[test]
fn text_without_blanks_is_cut_within_its_caps() {
    for text in ["漢字".repeat(900), "ภาษาไทย".repeat(300), "a".repeat(3000), "👩‍👩‍👧".repeat(200), "🇩🇪".repeat(700)]
    {
        check(&text, 0..text.len(), &ChunkOptions::default(), &|piece: &str| piece.chars().count());
    }
    let arabic = "هذه جملة أولى. وهذه جملة ثانية؟ وهذه ثالثة. ".repeat(3);
    assert!(of(&arabic, &small(20)).iter().all(|chunk| chunk.ends_with(['.', '؟'])));
}

/// A tokenizer whose counts do not add up, because line ends and seams are tokens too.
fn uneven(text: &str) -> usize {
    text.len().div_ceil(3) + text.matches('\n').count() * 2 + text.matches(". ").count()
}

#[test]
fn lines_of_megabytes_cost_their_length() {
    for unit in [
        "a",
        "漢",
        "ไทย",
        "word ",
        "e\u{301}",
        ". ",
        " ",
        "\u{301}",
        "# ",
        "|",
        "`",
        "- x\n",
        "a|b\n-|-\n",
        "# a\n\nb\n\n",
        "A. ",
        "1. a.\n",
        "a:\n- ",
        "| a |\n",
    ] {
        let text = unit.repeat((1 << 20) / unit.len());
        let counted = Cell::new(0);
        let options = ChunkOptions::default();
        let counter = |piece: &str| {
            assert!(piece.chars().count() <= options.max_chars, "never more than a chunk");
            counted.set(counted.get() + piece.len());
            piece.chars().count().div_ceil(4)
        };
        let chunks = chunk(&text, 0..text.len(), &options, &counter);
        assert!(chunks.iter().all(|chunk| chunk.characters <= options.max_chars));
        assert!(counted.get() <= 6 * text.len(), "{unit:?}: {} bytes counted", counted.get());
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
        text in "([a-zé漢ก.:!? \n#|`~-]|\u{301}|👩‍👩‍👧|🇩🇪|\n\n|```\n|# |\n- |\n\\| [a-z] \\| [a-z]{1,9} \\||a\\|b\n-\\|-\n|[A-Z][a-z]{1,9}\\. ){0,200}",
        max_tokens in 1usize..60, min_chunk_length in 0usize..30, max_chars in 1usize..200,
    ) {
        let options = ChunkOptions { max_tokens, min_chunk_length, max_chars, ..ChunkOptions::default() };
        for tokens in [&words as &dyn TokenCounter, &str::len, &uneven] {
            check(&text, 0..text.len(), &options, tokens);
        }
    }

    #[test]
    fn any_characters_are_cut_exactly(text in any::<String>(), max_chars in 1usize..50) {
        let text = text.replace('\0', "");
        let start = text.ceil_char_boundary(text.len() / 3);
        check(&text, start..text.len(), &ChunkOptions { max_chars, ..ChunkOptions::default() }, &words);
    }
}
