//! Pages of an answer. A page has the best results that no page before has shown.
use super::Total;
use crate::store::search::reorder::Sorted;
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::{
    cmp::Ordering,
    collections::{HashMap, HashSet},
    ops::Range,
};
use svc_client::{
    Code, Failure,
    wire::{SearchMethod, SortOrder},
};
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

/// How many words of a query may be replaced, and how many bytes one has that is put in: a cursor carries them all.
pub(super) const REPLACED: usize = 4;
pub(super) const WORD_BYTES: usize = 192;
/// How many documents feed terms back into a query; a cursor carries their ids.
pub(super) const FED_BACK: usize = 10;
/// How many bytes the key of a result has by which it is sorted: 60 characters of a title at most.
const KEY_BYTES: usize = 240;
/// How many bytes of a text one number of a cursor holds, below a one that says where they begin.
const PACKED: usize = 7;

/// A word that is put into a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    /// The bytes of the query, as it was typed, whose place it takes.
    pub range: Range<usize>,
    pub searched: String,
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Begin {
    /// How many results came before; where the cursor knows only some of these, at least as many as stand before the page in the ranking.
    skipped: usize,
    /// Whether the first page was content with what has all words of the query.
    by_all_words: bool,
    /// How many results the first page was to show.
    first: usize,
    /// How many of the best results the first page ranked again or sorted; 0 where their scores decide.
    candidates: u32,
    /// What the last one that came before was sorted by, at that time.
    key: Option<String>,
    /// The last ones that came before, in their order.
    shown: Vec<DocumentId>,
}

impl Begin {
    /// What the numbers of a cursor of this search say: where the page begins, the words to put into the query, and the documents that feed terms back into it.
    fn of(numbers: &[u64], method: usize, search: u64) -> Option<(Begin, Vec<Replaced>, Vec<DocumentId>)> {
        let [of_method, skipped, of_search, by_all_words, first, candidates, key, words, fed_back, rest @ ..] = numbers
        else {
            return None;
        };
        let (key, rest) = rest.split_at_checked(usize::try_from(*key).ok()?)?;
        let (words, rest) = rest.split_at_checked(usize::try_from(*words).ok()?)?;
        let fed_back = usize::try_from(*fed_back).ok().filter(|count| *count <= FED_BACK)?;
        let (fed_back, shown) = rest.split_at_checked(fed_back)?;
        let is_of_this = *of_method == method as u64 && *of_search == search;
        let is_bounded = *skipped < MOST as u64 && *first <= MOST as u64 && *candidates <= MOST as u64;
        if !is_of_this || !is_bounded || !(1..=KNOWN).contains(&shown.len()) {
            return None;
        }
        let ids = |ids: &[u64]| -> Vec<DocumentId> {
            ids.iter().map(|id| DocumentId(i64::try_from(*id).unwrap_or(i64::MAX))).collect()
        };
        let (shown, fed_back) = (ids(shown), ids(fed_back));
        let (skipped, first, by_all_words) = (*skipped as usize, *first as usize, *by_all_words != 0);
        let key = match key {
            [] => None,
            packed => Some(unpacked(packed).filter(|key| key.len() <= KEY_BYTES && !key.contains('\0'))?),
        };
        let candidates = *candidates as u32;
        let begin = Begin { skipped, by_all_words, first, candidates, key, shown };
        Some((begin, replaced(words)?, fed_back))
    }
}

/// A page of the results of one search.
#[derive(Clone, Debug)]
pub(super) struct Page {
    method: usize,
    /// Tells one search from others.
    search: u64,
    limit: usize,
    begin: Option<Begin>,
    /// Whether it looks at all results that pages show.
    is_deep: bool,
    /// The words that the first page put into its query, and so does each further one, whatever has been stored meanwhile.
    pub replaced: Vec<Replaced>,
    /// The best texts of the first page's plain search, whose terms each page adds to the query.
    pub fed_back: Vec<DocumentId>,
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
        let page = Page {
            method,
            search,
            limit: limit as usize,
            begin: None,
            is_deep: false,
            replaced: Vec::new(),
            fed_back: Vec::new(),
        };
        let Some(cursor) = cursor else { return Ok(page) };
        let known = numbers(cursor).and_then(|numbers| Begin::of(&numbers, method, search));
        let (begin, replaced, fed_back) = known.ok_or_else(of_another)?;
        Ok(Page { begin: Some(begin), replaced, fed_back, ..page })
    }

    /// How many results of the ranking are looked at: a page more than are shown, since others may have come before the last page's end.
    pub fn reach(&self) -> usize {
        match &self.begin {
            None => self.limit,
            Some(_) if self.is_deep => MOST,
            Some(Begin { skipped, .. }) => (skipped + 2 * self.limit).min(MOST),
        }
    }

    /// Widens the look to all results that pages show, if everything that was looked at was passed and there may be more; returns whether it did.
    pub fn looks_deeper(&mut self, passed: usize) -> bool {
        let is_deeper = self.begin.is_some() && passed >= self.reach() && self.reach() < MOST;
        self.is_deep |= is_deeper;
        is_deeper
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

    /// How many of the best results are ranked again or sorted; `first` is the number for the first page. A further page takes the same results,
    /// whatever its own size.
    pub fn candidates(&self, first: u32) -> u32 {
        self.begin.as_ref().map(|begin| begin.candidates).filter(|candidates| *candidates > 0).unwrap_or(first)
    }

    /// How many results the first page was to show.
    pub fn first(&self) -> usize {
        self.begin.as_ref().map_or(self.limit, |begin| begin.first)
    }

    /// The results of a ranking that this page and further ones leave out. As long as the cursor knows everything that was shown, only that is left out, so
    /// results that were stored or found since then come too, however good they are. Once the cursor knows only the last ones, the page begins behind the last
    /// of these that is still there, or else where they began.
    pub fn passed(&self, ranked: &[DocumentId]) -> HashSet<DocumentId> {
        let Some(Begin { skipped, shown, .. }) = &self.begin else { return HashSet::new() };
        let known: HashSet<DocumentId> = shown.iter().copied().collect();
        let places: HashMap<DocumentId, usize> = ranked.iter().zip(0..).map(|(id, at)| (*id, at)).collect();
        let end = match *skipped > shown.len() {
            true => {
                let last = shown.iter().filter_map(|id| places.get(id)).max();
                last.map_or(skipped - shown.len(), |at| at + 1).min(ranked.len())
            }
            false => 0,
        };
        let behind = ranked[end..].iter().filter(|id| known.contains(id));
        ranked[..end].iter().chain(behind).copied().collect()
    }

    /// What the last result of the page before was sorted by.
    pub fn key(&self) -> Option<&str> {
        self.begin.as_ref()?.key.as_deref()
    }

    /// What an order, which was compared with [`Page::key`], leaves for this page and those after it. As long as the cursor knows everything that was
    /// shown, they begin where that key does: what is level with it may have changed places since, because scores decide there. Once the cursor knows
    /// only the last ones, they begin behind the last of these that is still sorted there, or else where it was. What was shown and then changed comes
    /// on none of them.
    pub fn left(&self, order: Vec<Sorted>, direction: SortOrder) -> Vec<Sorted> {
        let Some(Begin { skipped, key, shown, .. }) = &self.begin else { return order };
        // What has no key comes last in either direction.
        let stands = |sorted: &Sorted| match (&sorted.key, key) {
            (Some(_), Some(_)) => {
                let ascending = sorted.compared.unwrap_or_default().cmp(&0);
                if direction == SortOrder::Desc { ascending.reverse() } else { ascending }
            }
            (one, other) => one.is_none().cmp(&other.is_none()),
        };
        let level = order.iter().enumerate().filter(|(_, sorted)| stands(sorted) == Ordering::Equal);
        let level: HashMap<DocumentId, usize> = level.map(|(at, sorted)| (sorted.id, at)).collect();
        let last = shown.iter().rev().find_map(|id| level.get(id));
        let start = match last.filter(|_| *skipped > shown.len()) {
            Some(at) => at + 1,
            None => order.iter().take_while(|sorted| stands(sorted) == Ordering::Less).count(),
        };
        order.into_iter().skip(start).filter(|sorted| !shown.contains(&sorted.id)).collect()
    }

    /// What the next page begins with, if there may be one: this page shows `shown`, with which `end` results of the ranking have been shown or passed; `order`
    /// is that of the ranking.
    /// `by_all_words` says whether they have all words of the query, and others have some; `again`, how many of the best are ranked again or sorted, and by what
    /// the last one shown is sorted.
    pub fn next(
        &self,
        (end, order): (usize, &[DocumentId]),
        shown: &[DocumentId],
        total: Total,
        by_all_words: bool,
        again: Option<(u32, Option<String>)>,
    ) -> Option<String> {
        let has_more = if total.exact { total.count > end as u64 } else { true };
        let mut skipped = self.begin.as_ref().map_or(0, |begin| begin.skipped) + shown.len();
        let before = self.begin.iter().flat_map(|begin| &begin.shown);
        let mut known: Vec<DocumentId> = before.chain(shown).copied().collect();
        if skipped > KNOWN {
            // From here on pages begin behind the last one that the cursor knows, so it forgets those that stand first.
            skipped = skipped.max(end);
            let places: HashMap<DocumentId, usize> = order.iter().zip(0..).map(|(id, at)| (*id, at)).collect();
            known.sort_by_key(|id| places.get(id).copied().unwrap_or(usize::MAX));
        }
        if shown.is_empty() || !has_more || end >= MOST || skipped >= MOST {
            return None;
        }
        let words: Vec<u64> = self.replaced.iter().flat_map(carried).collect();
        let (narrow, (candidates, key)) = (u8::from(by_all_words), again.unwrap_or_default());
        let key = key.map(|key| packed(&key)).unwrap_or_default();
        let counts = format!("{}.{}.{}", key.len(), words.len(), self.fed_back.len());
        let first = self.first();
        let mut cursor = format!("{}.{skipped}.{}.{narrow}.{first}.{candidates}.{counts}", self.method, self.search);
        for number in key.into_iter().chain(words) {
            cursor.push_str(&format!(".{number}"));
        }
        for id in self.fed_back.iter().chain(&known[known.len().saturating_sub(KNOWN)..]) {
            cursor.push_str(&format!(".{}", id.0));
        }
        Some(cursor)
    }
}

fn numbers(cursor: &str) -> Option<Vec<u64>> {
    cursor.split('.').map(|number| number.parse().ok()).collect()
}

/// The refusal of a cursor that no page of this search gave.
pub(super) fn of_another() -> Failure {
    Failure::field("cursor", "takes a next_cursor of this very search")
}

/// A text as numbers; no numbers at all say that there is no text, so an empty one takes a number too.
fn packed(text: &str) -> Vec<u64> {
    let pack = |bytes: &[u8]| bytes.iter().fold(1_u64, |number, byte| number << 8 | u64::from(*byte));
    if text.is_empty() {
        return vec![pack(&[])];
    }
    text.as_bytes().chunks(PACKED).map(pack).collect()
}

fn unpacked(numbers: &[u64]) -> Option<String> {
    let mut text = Vec::new();
    for number in numbers {
        let bytes = number.to_be_bytes();
        let marker = bytes.iter().position(|byte| *byte != 0).filter(|at| bytes[*at] == 1)?;
        text.extend_from_slice(&bytes[marker + 1..]);
    }
    String::from_utf8(text).ok()
}

/// A word as numbers: where it begins in the query, how long what it replaces is, in how many numbers it is packed, and these.
fn carried(Replaced { range, searched }: &Replaced) -> Vec<u64> {
    let packed = packed(searched);
    [[range.start as u64, range.len() as u64, packed.len() as u64].to_vec(), packed].concat()
}

/// The words that numbers say. Whoever makes a cursor up only searches for what it might have typed.
fn replaced(mut numbers: &[u64]) -> Option<Vec<Replaced>> {
    let mut words = Vec::new();
    while let [start, length, count, rest @ ..] = numbers {
        let (packed, further) = rest.split_at_checked(usize::try_from(*count).ok()?)?;
        let start = usize::try_from(*start).ok()?;
        let end = start.checked_add(usize::try_from(*length).ok()?)?;
        let searched = unpacked(packed)?;
        if searched.trim().is_empty() || searched.len() > WORD_BYTES || searched.contains(char::is_control) {
            return None;
        }
        words.push(Replaced { range: start..end, searched });
        numbers = further;
    }
    (numbers.is_empty() && words.len() <= REPLACED).then_some(words)
}

/// The method of the search that a cursor goes on with.
pub(super) fn method(cursor: Option<&str>) -> Option<SearchMethod> {
    let numbers = numbers(cursor?)?;
    METHODS.get(usize::try_from(*numbers.first()?).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng, rngs::SmallRng};
    use svc_client::wire::Bm25Search;

    fn ids(ids: &[i64]) -> Vec<DocumentId> {
        ids.iter().copied().map(DocumentId).collect()
    }

    /// What of a ranking is left for a page.
    fn rest(page: &Page, ranked: &[i64]) -> Vec<i64> {
        let passed = page.passed(&ids(ranked));
        ranked.iter().copied().filter(|id| !passed.contains(&DocumentId(*id))).collect()
    }

    #[test]
    fn a_page_has_what_no_page_before_has_shown() {
        let body = Bm25Search { limit: 2, ..Bm25Search::new("heron") };
        let first = Page::of(SearchMethod::Bm25, &body, None, 2).unwrap();
        assert_eq!((first.reach(), rest(&first, &[5, 6])), (2, vec![5, 6]));
        let unknown = Total { count: 2, exact: false };
        let cursor = first.next((2, &ids(&[5, 6])), &ids(&[5, 6]), unknown, false, None).unwrap();
        let body = Bm25Search { limit: 3, include_content: false, explain: true, ..body };
        let second = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        assert_eq!(second.reach(), 8);
        assert_eq!(rest(&second, &[9, 5, 8, 6, 7]), [9, 8, 7], "two came before the last one since");
        assert_eq!(rest(&second, &[5, 7]), [7], "the last one is gone");
        assert_eq!(rest(&second, &[7, 8]), [7, 8], "the whole page is gone");
        assert_eq!(method(Some(&cursor)), Some(SearchMethod::Bm25));
        // A further page knows what came before the last one too.
        let cursor = second.next((5, &[]), &ids(&[7, 8, 9]), unknown, false, None).unwrap();
        let third = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        assert_eq!(rest(&third, &[5, 10, 11, 8]), [10, 11]);
        for (body, method) in [
            (Bm25Search::new("egret"), SearchMethod::Bm25),
            (Bm25Search { parent_id: Some(7), ..body.clone() }, SearchMethod::Bm25),
            (body, SearchMethod::Vector),
        ] {
            assert!(Page::of(method, &body, Some(&cursor), 3).is_err());
        }
    }

    #[test]
    fn a_page_behind_more_than_the_cursor_knows_begins_behind_the_last_one_that_is_still_there() {
        let body = Bm25Search::new("heron");
        let mut page = Page::of(SearchMethod::Bm25, &body, None, 60).unwrap();
        let unknown = Total { count: 900, exact: false };
        for first in [1, 61] {
            let shown: Vec<i64> = (first..first + 60).collect();
            let cursor = page.next((60, &[]), &ids(&shown), unknown, false, None).unwrap();
            page = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 60).unwrap();
        }
        let before: Vec<i64> = (1..=120).collect();
        assert_eq!(rest(&page, &[before.as_slice(), &[121, 122]].concat()), [121, 122]);
        assert_eq!(
            rest(&page, &[&before[..60], &[900], &before[60..119], &[121]].concat()),
            [121],
            "the last one is gone"
        );
        assert_eq!(rest(&page, &(900..=930).collect::<Vec<i64>>()), (920..=930).collect::<Vec<i64>>(), "all are gone");
    }

    /// Pages of a ranking into which others are put and from which some are taken between them. What was there all the time and is among the first thousand
    /// comes once, and nothing comes twice.
    #[test]
    fn pages_repeat_and_lose_nothing_whatever_is_stored_and_deleted_between_them() {
        let body = Bm25Search::new("heron");
        let mut random = SmallRng::seed_from_u64(7);
        for round in 0..400 {
            let limit = random.random_range(1..=100);
            let mut ranking: Vec<i64> = (0..random.random_range(1..=400)).collect();
            let (mut all, mut next) = (ranking.clone(), 1_000);
            let mut page = Page::of(SearchMethod::Bm25, &body, None, limit as u32).unwrap();
            let mut seen: Vec<i64> = Vec::new();
            loop {
                let mut looked: Vec<i64> = ranking.iter().copied().take(page.reach()).collect();
                let mut shown = rest(&page, &looked);
                if shown.is_empty() && page.looks_deeper(looked.len()) {
                    looked = ranking.iter().copied().take(page.reach()).collect();
                    shown = rest(&page, &looked);
                }
                let passed = looked.len() - shown.len();
                shown.truncate(limit);
                seen.extend(&shown);
                let total = Total { count: ranking.len() as u64, exact: true };
                let reached = passed + shown.len();
                let Some(cursor) = page.next((reached, &ids(&looked)), &ids(&shown), total, false, None) else { break };
                page = Page::of(SearchMethod::Bm25, &body, Some(&cursor), limit as u32).unwrap();
                for _ in 0..random.random_range(0..=limit / 4 + 1).min(900 - ranking.len().min(900)) {
                    ranking.insert(random.random_range(0..=ranking.len()), next);
                    next += 1;
                }
                for _ in 0..random.random_range(0..=limit / 8) {
                    if !ranking.is_empty() {
                        let gone = ranking.remove(random.random_range(0..ranking.len()));
                        all.retain(|id| *id != gone);
                    }
                }
            }
            let lost: Vec<&i64> = all.iter().filter(|id| !seen.contains(id)).collect();
            let count = seen.len();
            seen.sort_unstable();
            seen.dedup();
            assert_eq!((seen.len(), lost), (count, Vec::new()), "round {round}, by {limit}");
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
                let total = Total { count: 900, exact: true };
                let cursor = page.next((number * 100, &[]), &shown, total, by_all_words, None).unwrap();
                assert!(cursor.len() < 2_100, "{}", cursor.len());
                page = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 100).unwrap();
                assert_eq!((page.is_first(), page.enough(10)), (false, enough));
            }
        }
    }

    #[test]
    fn a_cursor_carries_the_words_that_were_put_in_and_how_many_were_sorted() {
        let body = Bm25Search::new("hreon in the reedz");
        let mut first = Page::of(SearchMethod::Bm25, &body, None, 10).unwrap();
        assert_eq!((first.candidates(100), first.first()), (100, 10));
        let longest = "é".repeat(WORD_BYTES / 2);
        let word = |range, searched: &str| Replaced { range, searched: searched.to_owned() };
        for replaced in
            [vec![], vec![word(0..5, "heron"), word(13..18, "reeds")], vec![word(8_000..8_009, &longest); REPLACED]]
        {
            first.replaced = replaced.clone();
            first.fed_back = (1..=FED_BACK as i64).map(|at| DocumentId(i64::MAX - at)).collect();
            let shown: Vec<DocumentId> = (1..=100).map(|at| DocumentId(i64::MAX - at)).collect();
            let key = "é".repeat(KEY_BYTES / 2);
            let sorted = Some((200, Some(key.clone())));
            let cursor = first.next((100, &[]), &shown, Total { count: 900, exact: true }, false, sorted).unwrap();
            assert!(cursor.len() < 5_200, "{}", cursor.len());
            let second = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 100).unwrap();
            assert_eq!((second.candidates(100), second.is_first(), second.key()), (200, false, Some(key.as_str())));
            assert_eq!(second.first(), 10, "whatever its own limit");
            assert_eq!((second.replaced, second.fed_back), (replaced, first.fed_back.clone()));
        }
        for numbers in [
            vec![0, 5],
            vec![0, 5, 1],
            vec![0, 5, 0],
            vec![0, 5, 1, 0],
            vec![0, 5, 1, 0x0200],
            vec![0, 5, 1, 0x01ff],
            vec![0, 5, 1, 0x0120],
            vec![0, 5, 1, 0x0100],
            vec![u64::MAX, u64::MAX, 1, 0x0161],
            vec![0, 5, u64::MAX, 0x0161],
            [0, 5, 1, 0x0161].repeat(REPLACED + 1),
        ] {
            assert_eq!(replaced(&numbers), None, "{numbers:?}");
        }
    }

    #[test]
    fn a_cursor_that_nobody_gave_out_asks_for_no_more_than_pages_show() {
        let body = Bm25Search::new("heron");
        let first = Page::of(SearchMethod::Bm25, &body, None, 10).unwrap();
        let total = Total { count: 900, exact: true };
        let shown = ids(&(1..=10).collect::<Vec<i64>>());
        let cursor = first.next((10, &[]), &shown, total, false, Some((50, None))).unwrap();
        let numbers: Vec<&str> = cursor.split('.').collect();
        let [skipped, shown_first, candidates] = [1, 4, 5];
        assert_eq!([numbers[skipped], numbers[shown_first], numbers[candidates]], ["10", "10", "50"]);
        let forged = |at: usize, number: &str| {
            let mut numbers = numbers.clone();
            numbers[at] = number;
            Page::of(SearchMethod::Bm25, &body, Some(&numbers.join(".")), 10)
        };
        for at in [skipped, shown_first, candidates] {
            for number in ["1001", "4294967296", "18446744073709551615"] {
                assert!(forged(at, number).is_err(), "{at} {number}");
            }
        }
        assert_eq!(forged(candidates, "1000").unwrap().candidates(50), 1_000);
        assert_eq!(forged(candidates, "0").unwrap().candidates(50), 50);
        assert_eq!(forged(shown_first, "0").unwrap().first(), 0);
    }

    #[test]
    fn a_sorted_page_begins_where_the_last_one_ended_whatever_has_changed_its_place() {
        let body = Bm25Search::new("heron");
        let first = Page::of(SearchMethod::Bm25, &body, None, 3).unwrap();
        let order = |of: &[(i64, Option<i32>)]| -> Vec<Sorted> {
            let sorted = |(id, compared): &(i64, Option<i32>)| Sorted {
                id: DocumentId(*id),
                key: compared.map(|compared| compared.to_string()),
                compared: *compared,
            };
            of.iter().map(sorted).collect()
        };
        let all = order(&[(1, Some(-1)), (2, Some(0)), (3, Some(0)), (4, Some(0)), (5, Some(1)), (6, None)]);
        assert_eq!(first.left(all.clone(), SortOrder::Asc), all);
        let shown = [DocumentId(1), DocumentId(2), DocumentId(3)];
        let total = Total { count: 6, exact: true };
        let cursor = first.next((3, &[]), &shown, total, false, Some((100, Some("0".to_owned())))).unwrap();
        let second = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        let left = |of: &[(i64, Option<i32>)], direction| -> Vec<i64> {
            second.left(order(of), direction).into_iter().map(|sorted| sorted.id.0).collect()
        };
        let (before, level, behind) = (Some(-1), Some(0), Some(1));
        let as_it_was = [(1, before), (2, level), (3, level), (4, level), (5, behind), (6, None)];
        assert_eq!(left(&as_it_was, SortOrder::Asc), [4, 5, 6]);
        let ranked_again = [(1, before), (4, level), (2, level), (3, level), (5, behind)];
        assert_eq!(left(&ranked_again, SortOrder::Asc), [4, 5], "what is level now stands before what was shown");
        assert_eq!(left(&[(3, before), (1, before), (2, level), (4, level), (5, behind)], SortOrder::Asc), [4, 5]);
        assert_eq!(left(&[(1, before), (2, level), (4, level), (5, behind), (3, behind)], SortOrder::Asc), [4, 5]);
        assert_eq!(left(&[(9, before), (4, behind), (1, behind), (5, None), (2, None)], SortOrder::Asc), [4, 5]);
        assert_eq!(left(&[(3, behind), (2, behind), (1, level), (4, before), (5, before)], SortOrder::Desc), [4, 5]);
        assert_eq!(left(&[(9, before), (3, before)], SortOrder::Asc), Vec::<i64>::new());
        // Behind what has no key there is only what has none either.
        let cursor = first.next((3, &[]), &shown, total, false, Some((100, None))).unwrap();
        let second = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        let of = [(9, Some(0)), (2, Some(0)), (1, None), (3, None), (4, None)];
        let keys = order(&of).into_iter().map(|sorted| Sorted { compared: None, ..sorted }).collect();
        assert_eq!(second.left(keys, SortOrder::Desc).into_iter().map(|left| left.id.0).collect::<Vec<_>>(), [4]);
        // An empty title is a key like any other.
        let cursor = first.next((3, &[]), &shown, total, false, Some((100, Some(String::new())))).unwrap();
        let second = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 3).unwrap();
        assert_eq!(second.key(), Some(""));
        let left = second.left(order(&as_it_was), SortOrder::Asc).into_iter().map(|left| left.id.0);
        assert_eq!(left.collect::<Vec<_>>(), [4, 5, 6]);
    }

    #[test]
    fn a_sorted_page_behind_more_than_the_cursor_knows_begins_behind_the_last_one_that_is_level() {
        let body = Bm25Search::new("heron");
        let mut page = Page::of(SearchMethod::Bm25, &body, None, 60).unwrap();
        for first in [1, 61] {
            let shown = ids(&(first..first + 60).collect::<Vec<i64>>());
            let sorted = Some((1_000, Some("0".to_owned())));
            let cursor = page.next((60, &[]), &shown, Total { count: 900, exact: true }, false, sorted).unwrap();
            page = Page::of(SearchMethod::Bm25, &body, Some(&cursor), 60).unwrap();
        }
        // The cursor does not know that the first ones were shown.
        let level = |id| Sorted { id: DocumentId(id), key: Some("0".to_owned()), compared: Some(0) };
        let left = page.left((1..=122).map(level).collect(), SortOrder::Asc);
        assert_eq!(left.into_iter().map(|left| left.id.0).collect::<Vec<_>>(), [121, 122]);
    }

    #[test]
    fn the_last_page_leads_nowhere() {
        let page = Page::of(SearchMethod::Bm25, &Bm25Search::new("heron"), None, 10).unwrap();
        let shown = [DocumentId(6)];
        assert_eq!(page.next((10, &[]), &shown, Total { count: 10, exact: true }, false, None), None);
        assert!(page.next((10, &[]), &shown, Total { count: 11, exact: true }, false, None).is_some());
        assert_eq!(page.next((0, &[]), &[], Total { count: 0, exact: false }, false, None), None);
        assert_eq!(page.next((MOST, &[]), &shown, Total { count: 5_000, exact: true }, false, None), None);
    }
}
