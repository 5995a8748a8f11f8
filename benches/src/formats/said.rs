//! What other readers write into their Markdown beside what a file says.

/// The Markdown without these additions: comments (the numbers of slides, the places of pictures) and tags; the addresses of
/// pictures, which readers make up or fill with the bytes; the numbers of list items and headings, which are evidence of ours; the
/// text of a merged cell in each place that it covers; and the names that pandas has for what is empty. Moments stay only as dates,
/// because a workbook shows them in its own form, and Python in another one.
pub fn said(markdown: &str) -> String {
    let text = without_addresses(&without_tags(markdown));
    let mut said = String::with_capacity(text.len());
    let mut above: Vec<&str> = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some(row) = line.strip_prefix('|') else {
            above.clear();
            add(&mut said, without_number(line));
            continue;
        };
        if row.contains("--") && row.chars().all(|character| matches!(character, '-' | ':' | '|' | ' ')) {
            continue;
        }
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let mut before = None;
        for (column, cell) in cells.iter().enumerate() {
            if before != Some(cell) && above.get(column) != Some(cell) {
                add(&mut said, shown(cell));
            }
            before = Some(cell);
        }
        above = cells;
    }
    said
}

fn add(text: &mut String, words: &str) {
    text.push_str(words);
    text.push('\n');
}

fn without_tags(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, tag) = rest.split_at(at);
        kept.push_str(before);
        let end = if tag.starts_with("<!--") { tag.find("-->").map(|end| end + 3) } else { end_of_tag(tag) };
        // A sign that begins no tag is kept as a blank, because it is no part of a word.
        kept.push(' ');
        rest = &tag[end.unwrap_or(1)..];
    }
    kept.push_str(rest);
    kept
}

/// Where a tag ends within its line. An address in such brackets is no tag.
fn end_of_tag(tag: &str) -> Option<usize> {
    let first = tag.chars().nth(1)?;
    let end = tag.find(['>', '\n'])?;
    let is_tag = (first.is_ascii_alphabetic() || first == '/') && tag[end..].starts_with('>');
    (is_tag && !tag[..end].contains("://")).then_some(end + 1)
}

/// Keeps of each picture what it shows.
fn without_addresses(text: &str) -> String {
    let mut pieces = text.split("![");
    let mut kept = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        kept.push(' ');
        match piece.split_once("](").and_then(|(alt, rest)| Some((alt, rest.split_once(')')?.1))) {
            Some((alt, rest)) => {
                kept.push_str(alt);
                kept.push(' ');
                kept.push_str(rest);
            }
            None => kept.push_str(piece),
        }
    }
    kept
}

fn without_number(line: &str) -> &str {
    let item = line.trim_start_matches(|character: char| character.is_ascii_digit() || character == '.');
    let number = &line[..line.len() - item.len()];
    let is_number = number.starts_with(|character: char| character.is_ascii_digit()) && number.ends_with('.');
    match item.strip_prefix(' ') {
        Some(text) if is_number => text,
        _ => line,
    }
}

/// What of a cell is written in the same way by all.
fn shown(cell: &str) -> &str {
    let is_empty = cell == "NaN" || cell.starts_with("Unnamed: ");
    let is_duration = cell.split_once(" days, ").is_some_and(|(days, time)| is_number(days) && time.contains(':'));
    match cell.split_once(' ') {
        _ if is_empty || is_duration => "",
        Some((date, "00:00:00")) if is_date(date) => date,
        Some((date, time)) if is_date(date) && time.contains(':') => "",
        _ => cell,
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_ascii_digit())
}

fn is_date(text: &str) -> bool {
    let fits = |(place, character): (usize, char)| match place {
        4 | 7 => character == '-',
        _ => character.is_ascii_digit(),
    };
    text.len() == 10 && text.chars().enumerate().all(fits)
}
