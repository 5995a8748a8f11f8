//! The SQL of full text.
use super::{
    documents::add,
    lexicon::{Lexicon, lexeme},
    nodes::TextRow,
    scope::readable,
    search::{Eligible, eligible},
};
use sqlx::PgConnection;
use svc_ids::DocumentId;

/// Up to this number, it is counted in how many documents a word occurs. A word in more is too common to tell texts apart.
pub const COUNTED: i64 = 10_000;

/// Documents with their scores, best first, and how many match in all.
pub type Matches = (Vec<(DocumentId, f64)>, i64);

/// Writes the words of documents.
pub(super) async fn set_words(conn: &mut PgConnection, ids: &[DocumentId], words: Vec<String>) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO document_words (document_id, words) SELECT id, words::tsvector FROM unnest($1::bigint[], $2::text[]) AS w (id, words)
         ON CONFLICT (document_id) DO UPDATE SET words = excluded.words",
    )
    .bind(ids)
    .bind(words)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Writes the words of documents again.
pub async fn renew(
    conn: &mut PgConnection,
    lexicon: &Lexicon,
    rows: impl Iterator<Item = &TextRow>,
) -> sqlx::Result<()> {
    let (ids, texts): (Vec<DocumentId>, Vec<(&str, &str)>) =
        rows.map(|row| (row.id, (row.title.as_str(), row.content.as_str()))).unzip();
    let words = lexicon.words(texts).await;
    set_words(conn, &ids, words).await
}

/// How well a document has all that is asked for: by the density of its cover, or by the sum of these words if there are some.
macro_rules! density {
    ($query:literal, $apart:literal) => {
        concat!(
            "CASE WHEN ",
            $apart,
            " = '{}' THEN ts_rank_cd(w.words, ",
            $query,
            ")
                  ELSE (SELECT sum(ts_rank(w.words, u.word, 1)) FROM unnest(",
            $apart,
            ") AS u (word)) END::float8"
        )
    };
}

/// Eligible documents that match a tsquery, best first, equal ones by id; `apart` has the tsqueries of its words if density would take long.
pub async fn matching(
    conn: &mut PgConnection,
    eligible: &Eligible,
    query: &str,
    apart: &[String],
    limit: i64,
) -> sqlx::Result<Matches> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, query.to_owned());
    add(&mut arguments, apart.to_vec());
    add(&mut arguments, limit);
    let statement = eligible.statement(
        concat!(
            "SELECT d.id, ", density!("q.whole", "q.apart"), " AS score, count(*) OVER ()
               FROM (SELECT $12::text::tsquery AS whole, $13::text[]::tsquery[] AS apart) q, document_words w JOIN documents d ON d.id = w.document_id
              WHERE ", eligible!(), " AND w.words @@ q.whole ORDER BY score DESC, d.id LIMIT $14"
        ),
        &mut arguments,
    );
    let rows: Vec<(DocumentId, f64, i64)> =
        sqlx::query_as_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_all(conn).await?;
    Ok(counted(rows))
}

/// For each of these terms an eligible document that has it, if there is one. Those that have it come from the index, as `OFFSET` says: the planner expects
/// any term in one of 200 documents and would read the table until it meets one, so all of it for a term that nobody has.
pub async fn holders(
    conn: &mut PgConnection,
    eligible: &Eligible,
    terms: &[String],
) -> sqlx::Result<Vec<Option<DocumentId>>> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, terms.iter().map(|term| lexeme(term)).collect::<Vec<String>>());
    let statement = eligible.statement(
        concat!(
            "SELECT (SELECT d.id FROM (SELECT w.document_id FROM document_words w WHERE w.words @@ u.term::tsquery OFFSET 0) w
                       JOIN documents d ON d.id = w.document_id WHERE ",
            eligible!(),
            " LIMIT 1) FROM unnest($12::text[]) WITH ORDINALITY AS u (term, place) ORDER BY u.place"
        ),
        &mut arguments,
    );
    sqlx::query_scalar_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_all(conn).await
}

/// Each word with the number of documents that have it, counted up to 10,000, and the number of all, counted up to twice that.
pub async fn frequencies(conn: &mut PgConnection, words: &[String]) -> sqlx::Result<(Vec<i64>, i64)> {
    sqlx::query_as(
        "SELECT ARRAY(SELECT (SELECT count(*) FROM (SELECT FROM document_words w WHERE w.words @@ u.word::tsquery LIMIT $2) there)
                        FROM unnest($1::text[]) WITH ORDINALITY AS u (word, place) ORDER BY place),
                (SELECT count(*) FROM (SELECT FROM document_words LIMIT 2 * $2) there)",
    )
    .bind(words)
    .bind(COUNTED)
    .fetch_one(conn)
    .await
}

/// What a question asks for.
pub struct Question<'a> {
    /// The tsquery of what comes first.
    pub all: &'a str,
    /// The tsquery of what may be found.
    pub among: &'a str,
    /// What makes a document better: the tsqueries of words, and what each is worth.
    pub words: &'a [String],
    /// What `all` asks for, one by one, if density would take long.
    pub apart: &'a [String],
    pub weights: &'a [f64],
}

/// Eligible documents, by the sum of what their words are worth, equal ones by id. A word that occurs often counts for more, and in a long
/// text for less. What has everything comes first, in the order of [`matching`], so that a longer answer begins as a shorter one: a word
/// counts a tenth at most, so that no sum reaches what is added for that.
pub async fn answering(
    conn: &mut PgConnection,
    eligible: &Eligible,
    question: &Question<'_>,
    limit: i64,
) -> sqlx::Result<Matches> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, question.among.to_owned());
    add(&mut arguments, question.words.to_vec());
    add(&mut arguments, question.weights.to_vec());
    add(&mut arguments, question.all.to_owned());
    add(&mut arguments, question.weights.iter().sum::<f64>());
    add(&mut arguments, question.apart.to_vec());
    add(&mut arguments, limit);
    let statement = eligible.statement(
        concat!(
            "SELECT d.id, CASE WHEN w.words @@ q.whole THEN $16::float8 + ", density!("q.whole", "q.apart"), "
                               ELSE (SELECT sum(u.weight * ts_rank(w.words, u.word, 1)) FROM unnest(q.words, $14::float8[]) AS u (word, weight)) END AS score,
                    count(*) OVER ()
               FROM (SELECT $12::text::tsquery AS among, $13::text[]::tsquery[] AS words, $15::text::tsquery AS whole, $17::text[]::tsquery[] AS apart) q, document_words w
               JOIN documents d ON d.id = w.document_id
              WHERE ", eligible!(), " AND w.words @@ q.among ORDER BY score DESC, d.id LIMIT $18"
        ),
        &mut arguments,
    );
    let rows: Vec<(DocumentId, f64, i64)> =
        sqlx::query_as_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_all(conn).await?;
    Ok(counted(rows))
}

fn counted(rows: Vec<(DocumentId, f64, i64)>) -> Matches {
    let count = rows.first().map_or(0, |(_, _, count)| *count);
    (rows.into_iter().map(|(id, score, _)| (id, score)).collect(), count)
}
