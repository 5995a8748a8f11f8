//! Pages of an answer. A page begins behind the last result of the page before, wherever that is by now.
use super::Total;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use svc_client::{Code, Failure, wire::SearchMethod};
use svc_ids::DocumentId;

/// How many results a search pages through.
const MOST: usize = 1_000;
/// What may differ between the pages of a search.
const PAGE_OWN: [&str; 10] = [
    "cursor",
    "limit",
    "include_content",
    "include_embed",
    "fields",
    "include_scores",
    "explain",
    "per_group",
    "snippets",
    "facets",
];

/// The methods in the order of their numbers in cursors.
const METHODS: [SearchMethod; 5] =
    [SearchMethod::Vector, SearchMethod::Fulltext, SearchMethod::Bm25, SearchMethod::Maxsim, SearchMethod::Hybrid];

/// How many of the results before a page its cursor knows.
const KNOWN: usize = 100;

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Begin {
    /// How many results came before.
    skipped: usize,
    /// Whether the first page was content with what has all words of the query.
    by_all_words: bool,
    /// The last ones that came before, in their order.
    shown: Vec<DocumentId>,
}

/// A page of the results of one search.
#[derive(Clone, Debug)]
pub(super) struct Page {
    method: usize,
    /// Tells one search from others.
    search: u64,
    limit: usize,
    begin: Option<Begin>,
}

impl Page {
    /// The page that a body asks for.
    pub fn of(method: SearchMethod, body: &impl Serialize, cursor: Option<&str>, limit: u32) -> Result<Page, Failure> {
        let mut asked = serde_json::to_value(body).map_err(|error| Failure::new(Code::Internal, error.to_string()))?;
        if let Value::Object(members) = &mut asked {
            PAGE_OWN.iter().for_each(|name| drop(members.remove(*name)));
        }
        let hash = Sha256::digest(asked.to_string());
        let search = hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)) >> 1;
        let method = METHODS.iter().position(|known| *known == method).unwrap_or_default();
        let page = Page { method, search, limit: limit as usize, begin: None };
        let Some(cursor) = cursor else { return Ok(page) };
        match numbers(cursor).as_deref() {
            Some([of_method, skipped, of_search, by_all_words, shown @ ..])
                if *of_method == method as u64
                    && *of_search == search
                    && *skipped < MOST as u64
                    && (1..=KNOWN).contains(&shown.len()) =>
            {
                let shown = shown.iter().map(|id| DocumentId(i64::try_from(*id).unwrap_or(i64::MAX))).collect();
                let begin = Begin { skipped: *skipped as usize, by_all_words: *by_all_words != 0, shown };
                Ok(Page { begin: Some(begin), ..page })
            }
            _ => Err(Failure::field("cursor", "takes a next_cursor of this very search")),
        }
    }

    /// How many results of the ranking are looked at: a page more than are shown, since others may have come before the last page's end.
    pub fn reach(&self) -> usize {
        match &self.begin {
            None => self.limit,
            Some(Begin { skipped, .. }) => (skipped + 2 * self.limit).min(MOST),
        }
    }

    /// Whether no other page of the search came before.
    pub fn is_first(&self) -> bool {
        self.begin.is_none()
    }

    /// How many results with all words of the query are enough, where `first` are for the first page: a further page stays with what the
    /// first one decided, whatever its own size.
    pub fn enough(&self, first: u32) -> u32 {
        match &self.begin {
            None => first,
            Some(Begin { by_all_words: true, .. }) => 0,
            Some(Begin { by_all_words: false, .. }) => u32::MAX,
        }
    }

    /// The number of results that come before this page in a ranking. The page begins behind the last one shown that is still there; if
    /// none of those that the cursor knows is, it begins where they began.
    pub fn start(&self, ranked: impl Iterator<Item = DocumentId>) -> usize {
        let Some(Begin { skipped, shown, .. }) = &self.begin else { return 0 };
        let places: HashMap<DocumentId, usize> = ranked.enumerate().map(|(at, id)| (id, at)).collect();
        let last = shown.iter().rev().find_map(|id| places.get(id));
        last.map_or(skipped.saturating_sub(shown.len()), |at| at + 1)
    }

    /// What the next page begins with, if there may be one: this page shows `shown`, with which `end` results have been shown.
    /// `by_all_words` says whether they have all words of the query, and others have some.
    pub fn next(&self, end: usize, shown: &[DocumentId], total: Total, by_all_words: bool) -> Option<String> {
        let has_more = if total.exact { total.count > end as u64 } else { true };
        if shown.is_empty() || !has_more || end >= MOST {
            return None;
        }
        let before = self.begin.iter().flat_map(|begin| &begin.shown);
        let known: Vec<&DocumentId> = before.chain(shown).collect();
        let mut cursor = format!("{}.{end}.{}.{}", self.method, self.search, u8::from(by_all_words));
        for id in &known[known.len().saturating_sub(KNOWN)..] {
            cursor.push_str(&format!(".{}", id.0));
        }
        Some(cursor)
    }
}

fn numbers(cursor: &str) -> Option<Vec<u64>> {
    cursor.split('.').map(|number| number.parse().ok()).collect()
}

/// The method of the search that a cursor goes on with.
pub(super) fn method(cursor: Option<&str>) -> Option<SearchMethod> {
    let numbers = numbers(cursor?)?;
    METHODS.get(usize::try_from(*numbers.first()?).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_client::wire::Bm25Search;

    fn ids(ids: &[i64]) -> impl Iterator<Item = DocumentId> {
        ids.iter().copied().map(DocumentId)
    }

    #[test]
    fn a_page_begins_behind_the_last_one_that_is_still_there() {
        let body = Bm25Search { limit: 2, ..Bm25Search::new("heron") };
        let first = Page::of(SearchMethod::Bm25, &body, None, 2).unwrap();
        assert_eq!((first.reach(), first.start(ids(&[5, 6]))), (2, 0));
        let unknown = Total { count: 2, exact: false };
        let cursor = first.next(2, &[DocumentId(5), DocumentId(6)], unknown, false).unwrap();
        let body = Bm25Search { limit: 3, include_content: false, explain: true, ..body };
        let second = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        assert_eq!(second.reach(), 8);
        assert_eq!(second.start(ids(&[9, 5, 8, 6, 7])), 4, "two came before it");
        assert_eq!(second.start(ids(&[5, 7])), 1, "the last one is gone");
        assert_eq!(second.start(ids(&[7, 8])), 0, "the whole page is gone");
        assert_eq!(method(Some(&cursor)), Some(SearchMethod::Bm25));
        // A further page knows what came before the last one too.
        let cursor = second.next(5, &[DocumentId(7), DocumentId(8), DocumentId(9)], unknown, false).unwrap();
        let third = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        assert_eq!(third.start(ids(&[5, 10, 11])), 1);
        for (body, method) in [
            (Bm25Search::new("egret"), SearchMethod::Bm25),
            (Bm25Search { parent_id: Some(7), ..body.clone() }, SearchMethod::Bm25),
            (body, SearchMethod::Vector),
        ] {
            assert!(Page::of(method, &body, Some(&cursor), 3).is_err());
        }
    }

    #[test]
    fn the_first_page_decides_for_the_others_and_a_cursor_stays_short() {
        let body = Bm25Search::new("heron");
        let mut page = Page::of(SearchMethod::Bm25, &body, None, 100).unwrap();
        assert_eq!((page.is_first(), page.enough(10)), (true, 10));
        for (by_all_words, enough) in [(true, 0), (false, u32::MAX)] {
            for number in 1..=3 {
                let shown: Vec<DocumentId> = (1..=100).map(|at| DocumentId(i64::MAX - at)).collect();
                let cursor = page.next(number * 100, &shown, Total { count: 900, exact: true }, by_all_words).unwrap();
                assert!(cursor.len() < 2_100, "{}", cursor.len());
                page = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 100).unwrap();
                assert_eq!((page.is_first(), page.enough(10)), (false, enough));
            }
        }
    }

    #[test]
    fn the_last_page_leads_nowhere() {
        let page = Page::of(SearchMethod::Bm25, &Bm25Search::new("heron"), None, 10).unwrap();
        let shown = [DocumentId(6)];
        assert_eq!(page.next(10, &shown, Total { count: 10, exact: true }, false), None);
        assert!(page.next(10, &shown, Total { count: 11, exact: true }, false).is_some());
        assert_eq!(page.next(0, &[], Total { count: 0, exact: false }, false), None);
        assert_eq!(page.next(MOST, &shown, Total { count: 5_000, exact: true }, false), None);
    }
}
