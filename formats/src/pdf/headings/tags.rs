//! Headings of a tagged file: the structure tree's elements H, H1 to H6 and Title.

use crate::{
    Heading,
    pdf::{document::Document, layout::Laid},
};
use hayro_syntax::object::{Dict, MaybeRef, Name, Object, ObjectIdentifier};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::VecDeque;

/// No real file has longer chains of roles.
const MOST_ROLES: usize = 8;
/// A heading with more characters is a wrongly tagged paragraph.
const MOST_CHARACTERS: usize = 400;

/// The headings that the structure tree declares, and what pages show of them.
pub(in crate::pdf) struct Tags {
    declared: Vec<Declared>,
    /// Which heading a marked content belongs to, by the page's index and the content's identifier.
    contents: FxHashMap<(usize, u32), usize>,
}

struct Declared {
    level: u8,
    title: String,
    start: Option<usize>,
}

/// An element that waits to be visited.
struct Waiting<'a> {
    object: MaybeRef<Object<'a>>,
    page: Option<usize>,
    sections: u8,
    heading: Option<usize>,
}

impl Tags {
    pub(super) fn read(document: &Document, most_elements: usize, most_headings: usize) -> Self {
        let mut tags = Self { declared: Vec::new(), contents: FxHashMap::default() };
        if let Some(root) = document.catalog().and_then(|catalog| catalog.get::<Dict<'_>>(b"StructTreeRoot")) {
            tags.walk(document, &root, most_elements, most_headings);
        }
        tags
    }

    /// Whether no declared heading shows anything.
    pub(super) fn is_empty(&self) -> bool {
        self.contents.is_empty()
    }

    fn walk(&mut self, document: &Document, root: &Dict<'_>, most_elements: usize, most_headings: usize) {
        let pages = document.page_indices();
        let roles = root.get::<Dict<'_>>(b"RoleMap").unwrap_or_default();
        let mut seen: FxHashSet<ObjectIdentifier> = FxHashSet::default();
        let mut waiting: VecDeque<Waiting<'_>> = VecDeque::new();
        let mut visited = 0;
        waiting.extend(kid(root).map(|object| Waiting { object, page: None, sections: 0, heading: None }));
        while let Some(Waiting { object, page, sections, heading }) = waiting.pop_front() {
            visited += 1;
            if visited > most_elements {
                break;
            }
            let object = match object {
                MaybeRef::NotRef(object) => Some(object),
                MaybeRef::Ref(reference) => {
                    let id = reference.into();
                    seen.insert(id).then(|| document.xref().get::<Object<'_>>(id)).flatten()
                }
            };
            match object {
                Some(Object::Number(content)) => {
                    self.note(page, u32::try_from(content.as_i64()).ok(), heading);
                }
                Some(Object::Array(kids)) => {
                    // They go before what waits already, in their order.
                    let kids: Vec<_> = kids.raw_iter().take(most_elements - visited).collect();
                    for object in kids.into_iter().rev() {
                        waiting.push_front(Waiting { object, page, sections, heading });
                    }
                }
                Some(Object::Dict(element)) => {
                    let page = element.get_ref(b"Pg").and_then(|page| pages.get(&page.into()).copied()).or(page);
                    if let Some(content) = element.get::<u32>(b"MCID") {
                        self.note(page, Some(content), heading);
                        continue;
                    }
                    let role = role(&element, &roles);
                    let sections =
                        sections.saturating_add(u8::from(matches!(role.as_deref(), Some(b"Sect" | b"Part" | b"Art"))));
                    let level = role.as_deref().and_then(|role| level(role, sections));
                    let heading = match level {
                        Some(level) if heading.is_none() && self.declared.len() < most_headings => {
                            self.declared.push(Declared { level, title: String::new(), start: None });
                            Some(self.declared.len() - 1)
                        }
                        _ => heading,
                    };
                    if let Some(object) = kid(&element) {
                        waiting.push_front(Waiting { object, page, sections, heading });
                    }
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, page: Option<usize>, content: Option<u32>, heading: Option<usize>) {
        if let (Some(page), Some(content), Some(heading)) = (page, content, heading) {
            self.contents.insert((page, content), heading);
        }
    }

    pub(super) fn add_page(&mut self, index: usize, laid: &Laid, start: usize) {
        for (content, range) in &laid.contents {
            let Some(&heading) = self.contents.get(&(index, *content)) else { continue };
            let heading = &mut self.declared[heading];
            let line = laid.text[..range.start].rfind('\n').map_or(0, |at| at + 1);
            heading.start.get_or_insert(start + line);
            if heading.title.len() <= MOST_CHARACTERS {
                // The title has a blank where the text has one between two of its parts.
                let before = laid.text[..range.start].chars().next_back();
                if before.is_some_and(char::is_whitespace) && !heading.title.is_empty() {
                    heading.title.push(' ');
                }
                heading.title.push_str(&laid.text[range.clone()]);
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Heading> {
        let headings = self.declared.into_iter().filter_map(|heading| {
            let title = heading.title.split_whitespace().collect::<Vec<_>>().join(" ");
            let is_title = title.chars().any(char::is_alphanumeric) && title.chars().count() <= MOST_CHARACTERS;
            is_title.then_some(Heading { level: heading.level, title, start: heading.start? })
        });
        let mut headings: Vec<_> = headings.collect();
        headings.sort_by_key(|heading| heading.start);
        headings
    }
}

fn kid<'a>(element: &Dict<'a>) -> Option<MaybeRef<Object<'a>>> {
    element.entries().find(|(name, _)| name.as_ref() == b"K").map(|(_, kid)| kid)
}

/// The standard role of an element.
fn role(element: &Dict<'_>, roles: &Dict<'_>) -> Option<Vec<u8>> {
    let mut role = element.get::<Name<'_>>(b"S")?;
    for _ in 0..MOST_ROLES {
        if level(role.as_ref(), 1).is_some() {
            break;
        }
        match roles.get::<Name<'_>>(role.as_ref()) {
            Some(mapped) => role = mapped,
            None => break,
        }
    }
    Some(role.as_ref().to_vec())
}

fn level(role: &[u8], sections: u8) -> Option<u8> {
    match role {
        b"Title" => Some(1),
        // Its level is that of the section that it heads.
        b"H" => Some(sections.clamp(1, 6)),
        [b'H', digit @ b'1'..=b'6'] => Some(digit - b'0'),
        _ => None,
    }
}
