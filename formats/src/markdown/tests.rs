use super::*;
use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

fn write(blocks: Vec<Block>) -> Extraction {
    let mut writer = Writer::default();
    for block in blocks {
        writer.write(block, &Limits::default()).unwrap();
    }
    writer.finish("styles")
}

fn table(rows: &[Vec<String>]) -> Table {
    let mut table = Table::default();
    for row in rows {
        for cell in row {
            table.cell(cell);
        }
        table.end_row();
    }
    table
}

/// What a block is, and how it reads.
#[derive(Debug, Clone, PartialEq)]
enum Shape {
    Heading(u8),
    Paragraph,
    /// How many items are around it.
    Item(usize),
    /// Rows and columns.
    Table(usize, usize),
    /// Anything that was never written.
    Stray(String),
}

fn parse(text: &str) -> Vec<Shape> {
    // This switches on every extension of Markdown that has blocks of its own.
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS;
    let mut shapes = Vec::new();
    let (mut items, mut rows, mut columns) = (0usize, 0, 0);
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Start(Tag::Heading { level, .. }) => shapes.push(Shape::Heading(level as u8)),
            Event::Start(Tag::Paragraph) if items == 0 => shapes.push(Shape::Paragraph),
            Event::Start(Tag::Item) => {
                shapes.push(Shape::Item(items));
                items += 1;
            }
            Event::End(TagEnd::Item) => items -= 1,
            Event::Start(Tag::Table(alignments)) => (rows, columns) = (0, alignments.len()),
            Event::Start(Tag::TableHead | Tag::TableRow) => rows += 1,
            Event::End(TagEnd::Table) => shapes.push(Shape::Table(rows, columns)),
            Event::Start(
                tag @ (Tag::BlockQuote(_)
                | Tag::CodeBlock(_)
                | Tag::HtmlBlock
                | Tag::FootnoteDefinition(_)
                | Tag::MetadataBlock(_)
                | Tag::List(Some(_))),
            ) => shapes.push(Shape::Stray(format!("{tag:?}"))),
            Event::Rule => shapes.push(Shape::Stray("rule".to_owned())),
            _ => {}
        }
    }
    shapes
}

/// Text made of the pieces that make structure in Markdown, in any order.
fn hostile_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "#",
            "##",
            "- ",
            "* ",
            "+ ",
            "-",
            "---",
            "***",
            "___",
            "===",
            "=",
            "+++",
            "> ",
            "1. ",
            "12) ",
            "9999999999. ",
            "```",
            "~~~",
            "|",
            "| --- |",
            ":--",
            "--|--",
            "<div>",
            "<!-- ",
            "</p>",
            "<?x",
            "<a@b.c>",
            "[a]: b",
            "[^1]: c",
            "[a",
            "]: ",
            "\\",
            "\n",
            "\n\n",
            " ",
            "    ",
            "\t",
            "\u{a0}",
            "&",
            "`",
            "*",
            "_",
            "$$",
            "\u{b}",
            "\u{2028}",
        ])
        .prop_map(str::to_owned),
        "[a-zé]{1,4}",
    ];
    prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
}

#[derive(Debug, Clone)]
enum Plan {
    Heading(u8, String),
    Paragraph(String),
    Item(u8, String),
    Table(Vec<Vec<String>>),
}

fn plan() -> impl Strategy<Value = Plan> {
    prop_oneof![
        (1u8..=9, hostile_text()).prop_map(|(level, text)| Plan::Heading(level, text)),
        hostile_text().prop_map(Plan::Paragraph),
        (0u8..=8, hostile_text()).prop_map(|(level, text)| Plan::Item(level, text)),
        prop::collection::vec(prop::collection::vec(hostile_text(), 1..4), 1..4).prop_map(Plan::Table),
    ]
}

/// The shapes that plans should read as; a text of only white space is not a block.
fn expected(plans: &[Plan]) -> Vec<Shape> {
    let mut list: Vec<u8> = Vec::new();
    let mut shapes = Vec::new();
    for plan in plans {
        if let Plan::Heading(_, text) | Plan::Paragraph(text) | Plan::Item(_, text) = plan
            && text.trim().is_empty()
        {
            continue;
        }
        if !matches!(plan, Plan::Item(..)) {
            list.clear();
        }
        shapes.push(match plan {
            Plan::Heading(level, _) => Shape::Heading((*level).min(6)),
            Plan::Paragraph(_) => Shape::Paragraph,
            Plan::Item(level, _) => {
                list.retain(|above| above < level);
                list.push(*level);
                Shape::Item(list.len() - 1)
            }
            Plan::Table(rows) => Shape::Table(rows.len(), rows.iter().map(Vec::len).max().unwrap_or(0)),
        });
    }
    shapes
}

fn block(plan: &Plan) -> Block {
    match plan {
        Plan::Heading(level, text) => Block::Heading { level: *level, text: text.clone() },
        Plan::Paragraph(text) => Block::Paragraph(text.clone()),
        Plan::Item(level, text) => Block::ListItem { level: *level, text: text.clone() },
        Plan::Table(rows) => Block::Table(table(rows)),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn what_is_written_reads_back_as_written(plans in prop::collection::vec(plan(), 1..6)) {
        let read = write(plans.iter().map(block).collect());
        prop_assert_eq!(parse(&read.text), expected(&plans), "{}", read.text);
        for heading in &read.headings {
            let line = read.text[heading.start..].lines().next().unwrap_or_default();
            prop_assert!(line.starts_with('#'), "{}", line);
        }
    }

    #[test]
    fn a_text_without_marks_stays_as_it_is(words in prop::collection::vec("[a-z*_`.&,;(){}$!?'\"~^%@/-]{2,8}[a-z]", 1..6)) {
        let text = format!("a{}", words.join(" "));
        prop_assert_eq!(write(vec![Block::Paragraph(text.clone())]).text, text);
    }
}

#[test]
fn only_what_would_change_the_structure_is_escaped() {
    for (text, expected) in [
        ("# no heading", "\\# no heading"),
        ("#hashtag", "#hashtag"),
        ("#\u{B}#", "\\#\u{B}#"),
        ("-\u{C}-", "\\-\u{C}-"),
        ("- dash", "\\- dash"),
        ("-5 degrees", "-5 degrees"),
        ("1. first", "1\\. first"),
        ("1.5 litres", "1.5 litres"),
        ("2024", "2024"),
        ("|x|", "\\|x|"),
        ("```sh", "\\```sh"),
        ("> 5", "\\> 5"),
        ("<5 percent", "<5 percent"),
        ("<div>", "\\<div>"),
        ("[1] Smith", "[1] Smith"),
        ("[a]: b", "\\[a]: b"),
        ("title\n---", "title\n\\---"),
        ("column\n:--", "column\n\\:--"),
        ("*stars* and_lines", "*stars* and_lines"),
        ("a  \n\n b", "a\nb"),
    ] {
        assert_eq!(write(vec![Block::Paragraph(text.to_owned())]).text, expected);
    }
}

#[test]
fn a_title_keeps_its_last_marks() {
    for (title, line) in [("Learning C #", "# Learning C \\#"), ("C#", "# C#"), ("#", "# \\#"), ("a\nb", "# a b")] {
        let read = write(vec![Block::Heading { level: 1, text: title.to_owned() }]);
        assert_eq!((read.text.as_str(), read.headings[0].title.as_str()), (line, one_line(title).as_str()));
        let mut events = Parser::new(&read.text);
        events.next();
        let text: String = events
            .map_while(|event| match event {
                Event::Text(text) => Some(text.to_string()),
                _ => None,
            })
            .collect();
        assert_eq!(text, one_line(title));
    }
}

#[test]
fn bars_stay_in_their_cell_whatever_stands_before_them() {
    for cell in ["a|b", "a\\|b", "a\\\\|b", "|", "\\", "`a|b`"] {
        let text = write(vec![Block::Table(table(&[vec![cell.to_owned(), "x".to_owned()]]))]).text;
        assert_eq!(parse(&text), [Shape::Table(1, 2)], "{text}");
    }
    let text = write(vec![Block::Table(table(&[vec!["a\\|b".to_owned()]]))]).text;
    let cell: String = Parser::new_ext(&text, Options::ENABLE_TABLES)
        .filter_map(|event| match event {
            Event::Text(text) => Some(text.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(cell, "a\\|b", "{text}");
}

#[test]
fn the_widest_row_sets_the_columns() {
    let rows = [vec!["a".to_owned()], vec!["b".to_owned(), String::new(), "c".to_owned()]];
    let text = write(vec![Block::Table(table(&rows))]).text;
    assert_eq!(text, "| a |  |  |\n| --- | --- | --- |\n| b |  | c |");
    assert_eq!(parse(&text), [Shape::Table(2, 3)]);
}

#[test]
fn the_limit_of_the_text_holds() {
    let limits = Limits { text_bytes: 10, ..Limits::default() };
    let error = Writer::default().write(Block::Paragraph("eleven bytes".to_owned()), &limits).unwrap_err();
    assert_eq!(error.limit(), Some(crate::Limit::TextBytes));
}
