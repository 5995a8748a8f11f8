//! The documents that state facts, with the words that do, and how much of an answer all this takes.
use super::of_ids;
use crate::store::{
    documents::add,
    scope::{Readable, readable},
};
use chrono::{DateTime, Utc};
use futures_util::TryStreamExt;
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};
use svc_client::wire::Citation;
use svc_ids::TripleId;

/// How many citations of a fact are shown, those whose text is what it was before others.
const SHOWN: i64 = 10;
/// What a fact takes in an answer without its literal and its citations.
const FACT_BYTES: i64 = 1024;
/// What a citation takes without its quote.
const CITATION_BYTES: i64 = 256;
/// The most characters of a text that are read at once for several quotes. A longer quote is read by itself.
const LONGEST_PART: i32 = 1024 * 1024;

/// The citations of a fact that are shown, as they were known at $4 if that is given, and at most $5 of them.
macro_rules! cited {
    ($fact:literal) => {
        concat!(
            "(SELECT c.document_id, c.quote_start, c.quote_end, c.source_hash, c.confidence, c.cited_at, d.content_hash = c.source_hash AS is_current
                FROM triple_citations c JOIN documents d ON d.id = c.document_id AND ",
            readable!(),
            " WHERE c.triple_id = ",
            $fact,
            " AND ($4::timestamptz IS NULL OR c.cited_at <= $4) ORDER BY d.content_hash = c.source_hash DESC, c.cited_at, c.id LIMIT $5)"
        )
    };
}

/// An estimate of the bytes that each of these facts takes in an answer, as far as the scope covers what states it. A character of a quote counts as one byte.
pub async fn sizes(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[TripleId],
    known_at: Option<DateTime<Utc>>,
) -> sqlx::Result<Vec<(TripleId, i64)>> {
    let mut arguments = of_ids(scope, ids);
    add(&mut arguments, known_at);
    add(&mut arguments, SHOWN);
    add(&mut arguments, FACT_BYTES);
    add(&mut arguments, CITATION_BYTES);
    sqlx::query_as_with(
        concat!(
            "SELECT t.id, $6::bigint + coalesce(octet_length(t.object_literal), 0) + (
                    SELECT coalesce(sum($7::bigint + CASE WHEN c.is_current THEN coalesce(c.quote_end - c.quote_start, 0) ELSE 0 END), 0)::bigint FROM ",
            cited!("t.id"),
            " c) FROM triples t WHERE t.id = ANY($3)"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}

#[derive(sqlx_macros::FromRow)]
struct CitationRow {
    triple_id: TripleId,
    document_id: i64,
    quote_start: Option<i32>,
    quote_end: Option<i32>,
    source_hash: String,
    confidence: Option<f64>,
    cited_at: DateTime<Utc>,
    /// Whether the text is what it was.
    is_current: bool,
}

/// The citations of facts that are shown, as far as the scope covers the documents.
pub(super) async fn read(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[TripleId],
    known_at: Option<DateTime<Utc>>,
) -> sqlx::Result<HashMap<TripleId, Vec<Citation>>> {
    let mut arguments = of_ids(scope, ids);
    add(&mut arguments, known_at);
    add(&mut arguments, SHOWN);
    let rows: Vec<CitationRow> = sqlx::query_as_with(
        concat!(
            "SELECT k.id AS triple_id, c.* FROM unnest($3::bigint[]) k(id) CROSS JOIN LATERAL ",
            cited!("k.id"),
            " c"
        ),
        arguments,
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut quotes = quotes(conn, &rows).await?;
    let mut citations: HashMap<TripleId, Vec<Citation>> = HashMap::new();
    for (at, row) in rows.into_iter().enumerate() {
        let CitationRow { triple_id, document_id, quote_start, quote_end, source_hash, confidence, cited_at, .. } = row;
        let quote = quotes.remove(&at);
        let citation = Citation { document_id, quote, quote_start, quote_end, source_hash, confidence, cited_at };
        citations.entry(triple_id).or_default().push(citation);
    }
    Ok(citations)
}

/// A quote of a text, with the number of its citation.
struct Quote<'a> {
    document_id: i64,
    hash: &'a str,
    at: usize,
    start: i32,
    end: i32,
}

/// A part of a text that holds some of its quotes.
struct Part<'a> {
    document_id: i64,
    hash: &'a str,
    /// The first character that is quoted, and the one behind the last.
    begins: i32,
    ends: i32,
    places: Vec<(usize, i32, i32)>,
}

/// The quotes of citations, by the positions of these. Quotes that lie close together are read as one part of their text, however many they are, and
/// one part is here at a time, because the facts of a page may quote many long texts at both ends. A text that has changed since the citations were
/// read is not quoted.
async fn quotes(conn: &mut PgConnection, rows: &[CitationRow]) -> sqlx::Result<HashMap<usize, String>> {
    let mut quoted = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        if let (true, Some(start), Some(end)) = (row.is_current, row.quote_start, row.quote_end) {
            quoted.push(Quote { document_id: row.document_id, hash: &row.source_hash, at, start, end });
        }
    }
    let parts = parts(quoted);
    let mut quotes = HashMap::new();
    if parts.is_empty() {
        return Ok(quotes);
    }
    let query = "SELECT q.number, substr(d.content, q.begins + 1, q.ends - q.begins)
                   FROM unnest($1::bigint[], $2::int[], $3::int[], $4::text[]) WITH ORDINALITY AS q(id, begins, ends, hash, number)
                   JOIN documents d ON d.id = q.id AND d.content_hash = q.hash";
    let mut texts = sqlx::query_as::<_, (i64, String)>(query)
        .bind(parts.iter().map(|part| part.document_id).collect::<Vec<_>>())
        .bind(parts.iter().map(|part| part.begins).collect::<Vec<_>>())
        .bind(parts.iter().map(|part| part.ends).collect::<Vec<_>>())
        .bind(parts.iter().map(|part| part.hash).collect::<Vec<_>>())
        .fetch(conn);
    while let Some((number, text)) = texts.try_next().await? {
        if let Some(part) = usize::try_from(number - 1).ok().and_then(|at| parts.get(at)) {
            quotes.extend(cut(&text, part.begins, &part.places));
        }
    }
    Ok(quotes)
}

/// The parts of texts that hold these quotes.
fn parts(mut quotes: Vec<Quote<'_>>) -> Vec<Part<'_>> {
    quotes.sort_unstable_by_key(|quote| (quote.document_id, quote.start));
    let mut parts: Vec<Part<'_>> = Vec::new();
    for Quote { document_id, hash, at, start, end } in quotes {
        let is_close = |part: &&mut Part<'_>| part.document_id == document_id && end - part.begins <= LONGEST_PART;
        match parts.last_mut().filter(is_close) {
            Some(part) => {
                part.ends = part.ends.max(end);
                part.places.push((at, start, end));
            }
            None => parts.push(Part { document_id, hash, begins: start, ends: end, places: vec![(at, start, end)] }),
        }
    }
    parts
}

/// The quotes in a part of a text that begins with this character of it.
fn cut(part: &str, begins: i32, places: &[(usize, i32, i32)]) -> Vec<(usize, String)> {
    let bounds: BTreeSet<i32> = places.iter().flat_map(|(_, start, end)| [*start, *end]).collect();
    let mut bytes: HashMap<i32, usize> = HashMap::with_capacity(bounds.len());
    let (mut rest, mut passed) = (part.chars(), begins);
    for bound in bounds {
        if let Some(further) = usize::try_from(bound - passed).ok().and_then(|ahead| ahead.checked_sub(1)) {
            let _last = rest.nth(further);
        }
        passed = bound;
        bytes.insert(bound, part.len() - rest.as_str().len());
    }
    let byte = |bound: i32| bytes.get(&bound).copied().unwrap_or_default();
    let quote =
        |&(at, start, end): &(usize, i32, i32)| (at, part.get(byte(start)..byte(end)).unwrap_or_default().to_owned());
    places.iter().map(quote).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_that_lie_close_together_are_read_as_one_part_of_their_text() {
        let far = 10 * LONGEST_PART;
        let quote = |document_id, at, start, end| Quote { document_id, hash: "", at, start, end };
        let quotes = vec![
            quote(7, 0, far, far + 10),
            quote(7, 1, 0, 10),
            quote(7, 2, 5, LONGEST_PART),
            quote(7, 3, 6, LONGEST_PART + 1),
            quote(8, 4, 0, 2 * LONGEST_PART),
            quote(8, 5, 1, 3),
            quote(7, 6, far - 1, far + 1),
        ];
        let parts: Vec<_> = parts(quotes)
            .into_iter()
            .map(|part| {
                let at: Vec<usize> = part.places.iter().map(|(at, ..)| *at).collect();
                (part.document_id, part.begins, part.ends, at)
            })
            .collect();
        assert_eq!(
            parts,
            [
                (7, 0, LONGEST_PART, vec![1, 2]),
                (7, 6, LONGEST_PART + 1, vec![3]),
                (7, far - 1, far + 10, vec![6, 0]),
                (8, 0, 2 * LONGEST_PART, vec![4, 5]),
            ]
        );
    }

    #[test]
    fn a_quote_is_cut_by_characters_wherever_it_lies_among_others() {
        let text = "aß€😀 reiher\n";
        let letters: Vec<char> = text.chars().collect();
        let count = letters.len() as i32;
        let mut places = Vec::new();
        for start in 0..=count {
            for end in start..=count {
                places.push((places.len(), start, end));
            }
        }
        places.reverse();
        for begins in [0, 3] {
            let part: String = letters[begins as usize..].iter().collect();
            let within: Vec<_> = places.iter().copied().filter(|(_, start, _)| *start >= begins).collect();
            let found: HashMap<usize, String> = cut(&part, begins, &within).into_iter().collect();
            assert_eq!(found.len(), within.len());
            for (at, start, end) in within {
                let right: String = letters[start as usize..end as usize].iter().collect();
                assert_eq!(found[&at], right, "{start}..{end} of what begins at {begins}");
            }
        }
        assert_eq!(cut("ab", 0, &[(0, 1, 9)]), [(0, "b".to_owned())], "a text may be shorter");
    }
}
