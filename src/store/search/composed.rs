//! The part of a search's filter that is made of other filters.
use super::{Eligible, keys::json_path};
use crate::store::{documents::add, scope::readable};
use sqlx::{Arguments, AssertSqlSafe, PgConnection, postgres::PgArguments};
use std::collections::BTreeMap;
use svc_client::wire::SearchFilter;

/// The most files of the formats of a filter under which a document is looked for, instead of everywhere.
const FEW: usize = 1_000;

/// Filters in filters, which become a predicate of their own for each shape.
#[derive(Clone, Debug, Default)]
pub struct Composed {
    pub filter: SearchFilter,
    /// Only what it says of the places of documents holds: a document passes unless its place alone keeps it out.
    pub only_places: bool,
    /// What [`few_files`] returned for the formats that the filter names.
    pub few_files: BTreeMap<String, Vec<i64>>,
}

impl Composed {
    pub fn is_open(&self) -> bool {
        self.filter == SearchFilter::default()
    }
}

/// The files of each of these formats that at most 1,000 files have, whoever may read them: they only say where to look.
pub async fn few_files(conn: &mut PgConnection, formats: &[&str]) -> sqlx::Result<BTreeMap<String, Vec<i64>>> {
    // The order has the planner take the index, however many files it expects.
    let files: Vec<(String, Vec<i64>)> = sqlx::query_as(
        "SELECT f.format, ARRAY(SELECT b.document_id FROM document_blobs b WHERE b.is_file AND b.format = f.format ORDER BY b.document_id LIMIT $2)
           FROM (SELECT DISTINCT unnest($1::text[]) AS format) f",
    )
    .bind(formats)
    .bind(FEW as i64 + 1)
    .fetch_all(conn)
    .await?;
    Ok(files.into_iter().filter(|(_, files)| files.len() <= FEW).collect())
}

impl Eligible {
    /// A statement with `eligible!()` in it, complete. `arguments` are all of its own; the values of the predicate are added after them.
    pub(in crate::store) fn statement(&self, statement: &str, arguments: &mut PgArguments) -> AssertSqlSafe<String> {
        let mut filters: Vec<String> = self.filters().into_iter().map(str::to_owned).collect();
        // A filter that asks for nothing is `true`.
        let Composed { filter, only_places, few_files } = &self.composed;
        filters.push(Writer { arguments, only_places: *only_places, few_files }.write(filter, true));
        let filters = filters.join(" AND ");
        // The predicate has no text of the caller in it: all values are arguments.
        AssertSqlSafe(statement.replace("{filters}", &filters))
    }
}

/// Writes predicates over `documents d`. They may be NULL where the filter does not hold.
struct Writer<'a> {
    arguments: &'a mut PgArguments,
    only_places: bool,
    few_files: &'a BTreeMap<String, Vec<i64>>,
}

impl Writer<'_> {
    /// `is_wanted` is false within an odd number of `none`: what is not looked at must let documents pass there too.
    fn write(&mut self, filter: &SearchFilter, is_wanted: bool) -> String {
        let mut parts = Vec::new();
        if let Some(ids) = filter.exclude.as_ref().filter(|ids| !ids.is_empty()) {
            let value = self.value(ids.clone());
            parts.push(format!("NOT (d.id = ANY({value}::bigint[]) OR d.path && {value}::bigint[])"));
        }
        if let Some(ids) = &filter.under {
            let value = self.value(ids.clone());
            parts.push(format!("d.path && {value}::bigint[]"));
        }
        match self.only_places {
            false => self.others(filter, &mut parts),
            true if says_more_than_places(filter) && !is_wanted => parts.push("false".to_owned()),
            true => {}
        }
        if let Some(filters) = &filter.any {
            parts.push(self.joined(filters, " OR ", is_wanted));
        }
        if let Some(filters) = &filter.all {
            parts.push(self.joined(filters, " AND ", is_wanted));
        }
        if let Some(filters) = &filter.none {
            parts.push(format!("{} IS NOT TRUE", self.joined(filters, " OR ", !is_wanted)));
        }
        match parts.is_empty() {
            true => "true".to_owned(),
            false => format!("({})", parts.join(" AND ")),
        }
    }

    /// What a filter says of anything but the place of a document.
    fn others(&mut self, filter: &SearchFilter, parts: &mut Vec<String>) {
        if let Some(usetypes) = &filter.usetype {
            parts.push(format!("d.usetype = ANY({}::text[])", self.value(usetypes.clone())));
        }
        if let Some(formats) = &filter.format {
            let few: Option<Vec<&Vec<i64>>> = formats.iter().map(|format| self.few_files.get(format)).collect();
            let few: Option<Vec<i64>> = few.map(|files| files.into_iter().flatten().copied().collect());
            if let Some(files) = few.filter(|files| files.len() <= FEW) {
                // An index has what lies in these, and nothing else is looked at below.
                let value = self.value(files);
                parts.push(format!("(d.id = ANY({value}::bigint[]) OR d.path && {value}::bigint[])"));
            }
            // The facet `format` counts the same.
            let format = concat!(
                "(SELECT b.format FROM unnest(d.path || d.id) WITH ORDINALITY AS p (id, place)
                    JOIN document_blobs b ON b.document_id = p.id AND b.is_file
                   WHERE EXISTS (SELECT FROM documents d WHERE d.id = p.id AND ",
                readable!(),
                ") ORDER BY p.place DESC LIMIT 1)"
            );
            parts.push(format!("{format} = ANY({}::text[])", self.value(formats.clone())));
        }
        for (time, test) in [
            (filter.event_time_from, "d.event_time >= "),
            (filter.event_time_until, "d.event_time < "),
            (filter.created_at_from, "d.created_at >= "),
            (filter.created_at_until, "d.created_at < "),
        ] {
            if let Some(time) = time {
                parts.push(format!("{test}{}::timestamptz", self.value(time)));
            }
        }
        // Every document has no keys at all.
        if let Some(keys) = filter.structured_content.as_ref().filter(|keys| !keys.is_empty()) {
            let value = self.value(serde_json::Value::Object(keys.clone()));
            parts.push(format!("(d.structured_content <> '{{}}' AND d.structured_content @> {value}::jsonb)"));
        }
        for key in filter.keys.iter().flatten() {
            let value = self.value(json_path(key));
            // The index of structured content serves what a path asks to be equal.
            let holds = format!("(d.structured_content <> '{{}}' AND d.structured_content @? {value}::text::jsonpath)");
            parts.push(if key.exists == Some(false) { format!("{holds} IS NOT TRUE") } else { holds });
        }
    }

    fn joined(&mut self, filters: &[SearchFilter], word: &str, is_wanted: bool) -> String {
        let parts: Vec<String> = filters.iter().map(|filter| self.write(filter, is_wanted)).collect();
        format!("({})", parts.join(word))
    }

    /// Adds a value, and returns what stands for it.
    fn value<'q, T>(&mut self, value: T) -> String
    where
        T: sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + 'q,
    {
        add(self.arguments, value);
        format!("${}", self.arguments.len())
    }
}

/// Whether a filter itself asks for more than places.
fn says_more_than_places(filter: &SearchFilter) -> bool {
    let without = SearchFilter { exclude: None, under: None, any: None, all: None, none: None, ..filter.clone() };
    without != SearchFilter::default()
}
