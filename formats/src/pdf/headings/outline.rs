//! The outline: titles, levels and the pages they point to.

use super::titles::without_number;
use crate::{
    Extraction, FormatError, Heading, Limit, Limits, OutlineEntry,
    pdf::{document::Document, strings::text_string},
};
use hayro_syntax::object::{Array, Dict, MaybeRef, Name, Object, ObjectIdentifier, String as PdfString};
use std::collections::{HashMap, HashSet};

/// Reads the entries in pre-order. Cycles are cut where they close.
pub(super) fn read(document: &Document, limits: &Limits) -> Result<Vec<OutlineEntry>, FormatError> {
    let mut entries = Vec::new();
    let Some(catalog) = document.catalog() else { return Ok(entries) };
    let Some(first) = catalog.get::<Dict<'_>>(b"Outlines").and_then(|outlines| item(&outlines, b"First")) else {
        return Ok(entries);
    };
    let destinations = Destinations::new(document, &catalog, limits);
    let mut seen = HashSet::new();
    // These entries are still to be visited: an entry's next sibling waits below its children.
    let mut waiting = vec![(first, 1u8)];
    while let Some(((id, dict), level)) = waiting.pop() {
        if !seen.insert(id) {
            continue;
        }
        if entries.len() >= limits.headings as usize {
            return Err(FormatError::over(Limit::Headings, format_args!("over {} outline entries", limits.headings)));
        }
        let title = dict.get::<PdfString<'_>>(b"Title").map(|title| text_string(title.as_bytes())).unwrap_or_default();
        if !title.is_empty() {
            entries.push(OutlineEntry { level, title, page: destinations.of_entry(&dict) });
        }
        waiting.extend(item(&dict, b"Next").map(|next| (next, level)));
        waiting.extend(item(&dict, b"First").map(|child| (child, (level + 1).min(9))));
    }
    Ok(entries)
}

fn item<'a>(dict: &Dict<'a>, key: &[u8]) -> Option<(ObjectIdentifier, Dict<'a>)> {
    // Entries are linked by reference. One that is not could not be recognised in a cycle.
    Some((dict.get_ref(key)?.into(), dict.get(key)?))
}

struct Destinations<'a> {
    pages: HashMap<ObjectIdentifier, usize>,
    page_count: usize,
    named: HashMap<Vec<u8>, Object<'a>>,
}

impl<'a> Destinations<'a> {
    fn new(document: &'a Document, catalog: &Dict<'a>, limits: &Limits) -> Self {
        Self {
            pages: document.page_indices(),
            page_count: document.page_count(),
            named: named(catalog, limits.headings as usize),
        }
    }

    fn of_entry(&self, entry: &Dict<'a>) -> Option<usize> {
        let target = entry.get::<Object<'_>>(b"Dest").or_else(|| {
            let action = entry.get::<Dict<'_>>(b"A")?;
            let goes_to = action.get::<Name<'_>>(b"S")?;
            (goes_to.as_str() == "GoTo").then(|| action.get::<Object<'_>>(b"D"))?
        })?;
        self.page(&target, 0)
    }

    fn page(&self, target: &Object<'a>, depth: u8) -> Option<usize> {
        match target {
            Object::Array(array) => match array.raw_iter().next()? {
                MaybeRef::Ref(page) => self.pages.get(&page.into()).copied(),
                // This is a page number, as in a link to another file; some producers use it for their own.
                MaybeRef::NotRef(Object::Number(number)) => {
                    usize::try_from(number.as_i64()).ok().filter(|&page| page < self.page_count)
                }
                MaybeRef::NotRef(_) => None,
            },
            Object::Dict(dict) if depth < 4 => self.page(&dict.get::<Object<'_>>(b"D")?, depth + 1),
            Object::Name(name) if depth < 4 => self.page(self.named.get(name.as_ref())?, depth + 1),
            Object::String(name) if depth < 4 => self.page(self.named.get(name.as_bytes())?, depth + 1),
            _ => None,
        }
    }
}

/// Destinations by name, from the catalog's dictionary and its name tree.
fn named<'a>(catalog: &Dict<'a>, most: usize) -> HashMap<Vec<u8>, Object<'a>> {
    let mut named = HashMap::new();
    if let Some(dests) = catalog.get::<Dict<'_>>(b"Dests") {
        named.extend(
            dests.keys().take(most).filter_map(|name| Some((name.as_ref().to_vec(), dests.get::<Object<'_>>(&*name)?))),
        );
    }
    let mut seen = HashSet::new();
    let mut waiting: Vec<Dict<'a>> = Vec::new();
    waiting.extend(catalog.get::<Dict<'_>>(b"Names").and_then(|names| names.get::<Dict<'_>>(b"Dests")));
    while let Some(node) = waiting.pop() {
        if node.obj_id().is_some_and(|id| !seen.insert(id)) || named.len() >= most || seen.len() >= most {
            continue;
        }
        if let Some(leaves) = node.get::<Array<'_>>(b"Names") {
            let mut leaves = leaves.iter::<Object<'_>>();
            while let (Some(name), Some(target)) = (leaves.next(), leaves.next()) {
                if let Object::String(name) = name
                    && named.len() < most
                {
                    named.insert(name.as_bytes().to_vec(), target);
                }
            }
        }
        if let Some(kids) = node.get::<Array<'_>>(b"Kids") {
            waiting.extend(kids.iter::<Dict<'_>>().take(most.saturating_sub(waiting.len())));
        }
    }
    named
}

/// The entries that point into the file, each at its title's line on the page, or at the start of the page.
pub(in crate::pdf) fn place(entries: &[OutlineEntry], extraction: &Extraction) -> Vec<Heading> {
    let mut headings = Vec::new();
    // Thousands of entries may point to one long page. All searches together read the text a few times; after that,
    // titles are no longer searched for.
    let mut budget = extraction.text.len().saturating_mul(32);
    // Entries of one page come in order, so each search starts where the last one succeeded.
    let (mut on_page, mut from) = (None, 0);
    for entry in entries {
        let Some(page) = entry.page.and_then(|index| extraction.pages.get(index)) else { continue };
        if entry.page != on_page {
            on_page = entry.page;
            from = page.start;
        }
        let text = &extraction.text[from..page.end];
        // Any line of a text may begin like a title, so that way comes last.
        let ways: [fn(&str, &str) -> Option<usize>; 3] = [
            |text, title| find_line(text, title, |line| line),
            |text, title| find_line(text, title, without_number),
            find_beginning,
        ];
        for find in ways {
            let Some(left) = budget.checked_sub(text.len()) else { break };
            budget = left;
            if let Some(at) = find(text, &entry.title) {
                from += at;
                break;
            }
        }
        headings.push(Heading { level: entry.level, title: entry.title.clone(), start: from });
    }
    // An outline may point backwards, but offsets must ascend.
    headings.sort_by_key(|heading| heading.start);
    headings
}

/// Fewer characters distinguish longer titles, and this compares a line in constant time.
const COMPARED: usize = 64;
/// How far into a line their letters and digits are looked for.
const LOOKED_AT: usize = 512;

/// The start of the first line that begins with the title, ignoring white space and case.
fn find_beginning(text: &str, title: &str) -> Option<usize> {
    fn letters(text: &str) -> impl Iterator<Item = char> {
        text.chars().filter(|character| !character.is_whitespace()).flat_map(char::to_lowercase)
    }
    let wanted: Vec<char> = letters(title).take(COMPARED).collect();
    if wanted.is_empty() {
        return None;
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if letters(&text[at..]).take(wanted.len()).eq(wanted.iter().copied()) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

/// The start of the first line that is the title but for its marks and for what `words` takes away at the beginning of both. Many outlines
/// have no numbers, and the pages have them.
fn find_line(text: &str, title: &str, words: fn(&str) -> &str) -> Option<usize> {
    let wanted: Vec<char> = letters_of_lines(words(title)).filter(|letter| *letter != '\n').take(COMPARED).collect();
    if wanted.is_empty() {
        return None;
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let begin = at + line.len() - words(line).len();
        if line.contains(char::is_alphanumeric) && is_line_of(&text[begin..], &wanted) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

/// The letters and digits at the beginning of a text, and the ends of its lines.
fn letters_of_lines(text: &str) -> impl Iterator<Item = char> {
    let letters = text.chars().take(LOOKED_AT).filter(|character| *character == '\n' || character.is_alphanumeric());
    letters.flat_map(char::to_lowercase)
}

/// Whether the text begins with these letters, and its line ends behind them.
fn is_line_of(text: &str, wanted: &[char]) -> bool {
    let mut left = wanted;
    for letter in letters_of_lines(text) {
        match left.split_first() {
            None => return letter == '\n' || wanted.len() == COMPARED,
            Some((first, rest)) if *first == letter => left = rest,
            // A title may go on in the next line.
            Some(_) if letter == '\n' => {}
            Some(_) => return false,
        }
    }
    left.is_empty()
}
