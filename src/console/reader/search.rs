//! What somebody searches for, and the form that asks.
use super::super::{Parameters, layout::query};
use chrono::{DateTime, Days, NaiveDate, NaiveTime, Utc};
use maud::{Markup, html};
use svc_client::{
    Failure,
    constraint::Constraint,
    wire::{AutoSearch, GroupBy, SearchFilter},
};

/// How many results a page has, and how many texts of each.
const RESULTS: u32 = 10;
const TEXTS: u32 = 3;

/// The methods, as an address and as a person calls them.
pub const METHODS: [(&str, &str); 6] = [
    ("auto", "as suits the question"),
    ("hybrid", "words and meaning"),
    ("vector", "meaning"),
    ("bm25", "words"),
    ("fulltext", "words, \"phrases\", -without"),
    ("maxsim", "word by word meaning"),
];
const GROUPS: [(&str, &str, GroupBy); 3] = [
    ("file", "files", GroupBy::File),
    ("section", "sections", GroupBy::Section),
    ("none", "single texts", GroupBy::None),
];

/// A search as its address has it.
pub struct Wanted {
    pub q: String,
    pub method: &'static str,
    pub group: &'static str,
    pub parent: Option<i64>,
    pub usetype: String,
    pub from: String,
    pub until: String,
    /// Whether its words are meant as they stand, even if no text has them.
    pub exact: bool,
    /// Where the page of results begins.
    pub cursor: Option<String>,
}

impl Wanted {
    pub fn of(given: &Parameters) -> Wanted {
        let text = |name: &str| given.get(name).map(|text| text.trim().to_owned()).unwrap_or_default();
        let (method, group) = (text("method"), text("group_by"));
        Wanted {
            q: text("q"),
            method: METHODS.iter().find(|(word, _)| *word == method).map_or("auto", |(word, _)| word),
            group: GROUPS.iter().find(|(word, ..)| *word == group).map_or("file", |(word, ..)| word),
            parent: text("parent_id").parse().ok(),
            usetype: text("usetype"),
            from: text("from"),
            until: text("until"),
            exact: text("exact") == "yes",
            cursor: Some(text("cursor")).filter(|cursor| !cursor.is_empty()),
        }
    }

    /// The address of this search without the document that it stays under.
    pub fn everywhere(&self) -> String {
        self.address(None, self.exact, "")
    }

    /// The address of this search for its words as they stand.
    pub fn as_typed(&self) -> String {
        self.address(self.parent, true, "")
    }

    /// The address of a page of the results.
    pub fn page(&self, cursor: &str) -> String {
        self.address(self.parent, self.exact, cursor)
    }

    fn address(&self, parent: Option<i64>, exact: bool, cursor: &str) -> String {
        let parent = parent.map(|id| id.to_string()).unwrap_or_default();
        let pairs = [
            ("q", self.q.as_str()),
            ("method", self.method),
            ("group_by", self.group),
            ("usetype", &self.usetype),
            ("from", &self.from),
            ("until", &self.until),
            ("parent_id", &parent),
            ("exact", if exact { "yes" } else { "" }),
            ("cursor", cursor),
        ];
        format!("/view?{}", query(&pairs))
    }

    /// The request; the failure names the field that nobody can read.
    pub fn request(&self) -> Result<AutoSearch, Failure> {
        let from = day("from", &self.from)?;
        // No document is of a later day than the last one that the store can hold.
        let is_held = |day: &DateTime<Utc>| Constraint::Moment.check("until", day).is_ok();
        let until =
            day("until", &self.until)?.map(|day| day.checked_add_days(Days::new(1)).filter(is_held).unwrap_or(day));
        let filter = SearchFilter { created_at_from: from, created_at_until: until, ..SearchFilter::default() };
        let usetype = (!self.usetype.is_empty()).then(|| vec![self.usetype.clone()]);
        Ok(AutoSearch {
            parent_id: self.parent,
            limit: RESULTS,
            usetype,
            filter: (from.is_some() || until.is_some()).then_some(filter),
            include_content: false,
            group_by: GROUPS.iter().find(|(word, ..)| *word == self.group).map(|(.., group)| *group),
            per_group: TEXTS,
            snippets: Some(true),
            cursor: self.cursor.clone(),
            forgiving: !self.exact,
            ..AutoSearch::new(&self.q)
        })
    }

    fn is_narrowed(&self) -> bool {
        self.method != "auto"
            || self.group != "file"
            || ![&self.usetype, &self.from, &self.until].iter().all(|text| text.is_empty())
    }
}

/// The beginning of a day, in UTC.
fn day(name: &str, text: &str) -> Result<Option<DateTime<Utc>>, Failure> {
    if text.is_empty() {
        return Ok(None);
    }
    let day = text
        .parse::<NaiveDate>()
        .map_err(|_| Failure::field(name, format!("takes a day such as 2026-03-01, got `{text}`")))?;
    Ok(Some(day.and_time(NaiveTime::MIN).and_utc()))
}

/// A day as its field takes it; nothing if it is none.
fn typed(text: &str) -> Option<&str> {
    text.parse::<NaiveDate>().is_ok().then_some(text)
}

/// The box that asks, with what narrows the search folded away until somebody uses it.
pub fn form(wanted: &Wanted) -> Markup {
    html! {
        form .ask method="get" action="/view" role="search" aria-label="Search the documents" {
            div .line {
                input #ask name="q" type="search" value=(wanted.q) aria-label="What to search for" placeholder="Ask, or name words" maxlength="8000";
                button .main { "Search" }
            }
            @if let Some(parent) = wanted.parent {
                label .check { input type="checkbox" name="parent_id" value=(parent) checked; " only under document " (parent) }
            }
            details open[wanted.is_narrowed()] {
                summary { "How and where" }
                div .choices {
                    label { "By" select name="method" {
                        @for (word, said) in METHODS { option value=(word) selected[word == wanted.method] { (said) } }
                    } }
                    label { "Show" select name="group_by" {
                        @for (word, said, _) in GROUPS { option value=(word) selected[word == wanted.group] { (said) } }
                    } }
                    label { "Usetype" input name="usetype" value=(wanted.usetype) placeholder="any" maxlength="100"; }
                    label { "Stored from (UTC)" input name="from" type="date" value=[typed(&wanted.from)]; }
                    label { "Stored until (UTC)" input name="until" type="date" value=[typed(&wanted.until)]; }
                }
            }
        }
    }
}
