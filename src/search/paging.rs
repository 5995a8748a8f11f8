//! Pages of an answer. A page begins behind the last result of the page before, wherever that is by now.
use super::Total;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use svc_client::{Code, Failure, wire::SearchMethod};
use svc_ids::DocumentId;

/// How many results a search pages through.
const MOST: usize = 1_000;
/// What may differ between the pages of a search.
const PAGE_OWN: [&str; 8] =
    ["cursor", "limit", "include_content", "include_embed", "include_scores", "per_group", "snippets", "facets"];

/// The methods in the order of their numbers in cursors.
const METHODS: [SearchMethod; 5] =
    [SearchMethod::Vector, SearchMethod::Fulltext, SearchMethod::Bm25, SearchMethod::Maxsim, SearchMethod::Hybrid];

/// Where a page begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Begin {
    /// How many results came before.
    skipped: usize,
    /// The last one of them.
    behind: DocumentId,
}

/// A page of the results of one search.
#[derive(Clone, Copy, Debug)]
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
        match numbers(cursor).filter(|numbers| numbers[0] as usize == method && numbers[3] == search) {
            Some([_, skipped, behind, _]) if skipped < MOST as u64 => {
                let behind = DocumentId(i64::try_from(behind).unwrap_or(i64::MAX));
                Ok(Page { begin: Some(Begin { skipped: skipped as usize, behind }), ..page })
            }
            _ => Err(Failure::field("cursor", "takes a next_cursor of this very search")),
        }
    }

    /// How many results of the ranking are looked at: a page more than are shown, since others may have come before the last page's end.
    pub fn reach(&self) -> usize {
        match self.begin {
            None => self.limit,
            Some(Begin { skipped, .. }) => (skipped + 2 * self.limit).min(MOST),
        }
    }

    /// The number of results that come before this page in a ranking.
    pub fn start(&self, mut ranked: impl Iterator<Item = DocumentId>) -> usize {
        let Some(Begin { skipped, behind }) = self.begin else { return 0 };
        ranked.position(|id| id == behind).map_or(skipped, |at| at + 1)
    }

    /// What the next page begins with, if there may be one: this page ends with `last`, before which there are `end` results with it.
    pub fn next(&self, end: usize, last: Option<DocumentId>, total: Total) -> Option<String> {
        let has_more = if total.exact { total.count > end as u64 } else { true };
        let last = last.filter(|_| has_more && end < MOST)?;
        Some(format!("{}.{end}.{}.{}", self.method, last.0, self.search))
    }
}

fn numbers(cursor: &str) -> Option<[u64; 4]> {
    let numbers: Result<Vec<u64>, _> = cursor.split('.').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

/// The method of the search that a cursor goes on with.
pub(super) fn method(cursor: Option<&str>) -> Option<SearchMethod> {
    let [method, ..] = numbers(cursor?)?;
    METHODS.get(usize::try_from(method).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_client::wire::Bm25Search;

    fn ids(ids: &[i64]) -> impl Iterator<Item = DocumentId> {
        ids.iter().copied().map(DocumentId)
    }

    #[test]
    fn a_page_begins_behind_the_last_one_wherever_that_is() {
        let body = Bm25Search { limit: 2, ..Bm25Search::new("heron") };
        let first = Page::of(SearchMethod::Bm25, &body, None, 2).unwrap();
        assert_eq!((first.reach(), first.start(ids(&[5, 6]))), (2, 0));
        let unknown = Total { count: 2, exact: false };
        let cursor = first.next(2, Some(DocumentId(6)), unknown).unwrap();
        let body = Bm25Search { limit: 3, include_content: false, ..body };
        let second = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        assert_eq!(second.reach(), 8);
        assert_eq!(second.start(ids(&[9, 5, 8, 6, 7])), 4, "two came before it");
        assert_eq!(second.start(ids(&[5, 7])), 2, "it is gone");
        assert_eq!(method(Some(&cursor)), Some(SearchMethod::Bm25));
        for (body, method) in [
            (Bm25Search::new("egret"), SearchMethod::Bm25),
            (Bm25Search { parent_id: Some(7), ..body.clone() }, SearchMethod::Bm25),
            (body, SearchMethod::Vector),
        ] {
            assert!(Page::of(method, &body, Some(&cursor), 3).is_err());
        }
    }

    #[test]
    fn the_last_page_leads_nowhere() {
        let page = Page::of(SearchMethod::Bm25, &Bm25Search::new("heron"), None, 10).unwrap();
        let last = Some(DocumentId(6));
        assert_eq!(page.next(10, last, Total { count: 10, exact: true }), None);
        assert!(page.next(10, last, Total { count: 11, exact: true }).is_some());
        assert_eq!(page.next(0, None, Total { count: 0, exact: false }), None);
        assert_eq!(page.next(MOST, last, Total { count: 5_000, exact: true }), None);
    }
}
