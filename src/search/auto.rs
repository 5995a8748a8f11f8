//! Which method suits a query.
use super::{
    bm25,
    fulltext::{Minus, has_phrase, is_word_or_phrase},
    fulltext_by, hybrid_by, maxsim, paging, preset, vector,
};
use crate::{access::Caller, core::Core};
use svc_client::{
    Code, Failure,
    wire::{
        AutoSearch, Bm25Search, ContextConfig, FulltextSearch, GroupBy, HybridSearch, MaxsimSearch, SearchMethod,
        SearchResponse, VectorSearch,
    },
};

/// The shortest text that is taken for an identifier.
const IDENTIFIER: usize = 3;
/// From this length on a lone number is one of a catalogue, and no year.
const CATALOGUED: usize = 5;

/// Why terms were added to a query though nobody asked.
const AGREED: &str = "both find some of the same texts first, so terms of the best ones are searched for too";

/// Why a query with operators is not searched by them.
const UNASKABLE: &str =
    "full text refuses the query, since it has too many words or only forbids some, so its words decide";

/// Why a query is searched by its words alone.
const TOO_LONG: &str = "the query is longer than the model's window, so the letters decide";

/// What a query looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// It has a phrase in quotes, a word that is forbidden, or OR between words.
    Operators,
    /// It is one name, number or path, as machines and catalogues have them.
    Identifier,
    Words,
}

impl Form {
    fn of(query: &str) -> Form {
        let words: Vec<&str> = query.split_whitespace().collect();
        let is_forbidden = |word: &&str| word.strip_prefix('-').is_some_and(is_word_or_phrase);
        let forbids = words.iter().any(is_forbidden) && !words.iter().all(is_forbidden);
        let chooses = words.len() > 2 && words[1..words.len() - 1].contains(&"OR");
        if forbids || chooses || has_phrase(query) {
            return Form::Operators;
        }
        match words[..] {
            [word] if is_identifier(word) => Form::Identifier,
            _ => Form::Words,
        }
    }
}

/// Whether a word is none that people write in sentences: it has a digit beside a letter, a sign between its letters, or a capital behind a
/// small letter.
fn is_identifier(word: &str) -> bool {
    let characters: Vec<char> = word.trim_end_matches(['.', ',', ';', ':', '?', '!']).chars().collect();
    if characters.len() < IDENTIFIER {
        return false;
    }
    let has = |test: fn(&char) -> bool| characters.iter().any(test);
    let digits = has(char::is_ascii_digit);
    let sign = |sign: char| matches!(sign, '_' | '.' | '/' | ':' | '#' | '\\' | '@');
    let joined = characters.windows(2).skip(1).any(|two| sign(two[0]) && (two[1].is_alphanumeric() || sign(two[1])));
    let camel = characters.windows(2).any(|two| two[0].is_lowercase() && two[1].is_uppercase());
    joined || camel || (digits && (has(|character| character.is_alphabetic()) || characters.len() >= CATALOGUED))
}

/// The method for a query, and why.
fn route(named: Option<SearchMethod>, query: &str, has_model: bool) -> (SearchMethod, &'static str) {
    if let Some(method) = named {
        return (method, "the context names it");
    }
    match Form::of(query) {
        Form::Operators => (SearchMethod::Fulltext, "the query has a phrase, -word or OR, which full text understands"),
        Form::Identifier => (SearchMethod::Bm25, "the query is an identifier, which is found by its letters"),
        Form::Words if has_model => (SearchMethod::Hybrid, "words are found best by meaning and by letters together"),
        Form::Words => (SearchMethod::Bm25, "there is no embedding model (SVC_EMBEDDING_MODEL), so the letters decide"),
    }
}

/// Searches by the method that suits the query. Where that one cannot find it, another does, and the answer says so.
pub async fn auto(core: &Core, caller: &Caller, body: AutoSearch) -> Result<SearchResponse, Failure> {
    Box::pin(auto_by(core, caller, body, GroupBy::File)).await
}

/// Does the same; `group_by` stands for the texts if neither the body nor its context says what does.
pub(super) async fn auto_by(
    core: &Core,
    caller: &Caller,
    mut body: AutoSearch,
    group_by: GroupBy,
) -> Result<SearchResponse, Failure> {
    let preset = preset(core, caller, body.context.take()).await?;
    body.fill(&preset);
    body.group_by.get_or_insert(group_by);
    // A further page goes on with the method of the first.
    let begun = paging::method(body.cursor.as_deref());
    let is_free = preset.method.is_none() && begun.is_none();
    let (method, why) = match begun {
        Some(method) => (method, "the first page took it"),
        None => route(preset.method, &body.query, core.embedder.is_some()),
    };
    let (found, why) = match by(core, caller, &body, &preset, method).await {
        Ok(nothing)
            if is_free && method == SearchMethod::Bm25 && nothing.results.is_empty() && core.embedder.is_some() =>
        {
            match by(core, caller, &body, &preset, SearchMethod::Hybrid).await {
                Err(failure) if failure.code == Code::TextTooLong => (nothing, TOO_LONG),
                found => (found?, "no text has the identifier, so the meaning decides"),
            }
        }
        Err(failure) if is_free && method == SearchMethod::Fulltext && is_unaskable(&failure) => {
            let (words, _) = route(None, "words", core.embedder.is_some());
            match by(core, caller, &body, &preset, words).await {
                Err(failure) if failure.code == Code::TextTooLong => {
                    (by(core, caller, &body, &preset, SearchMethod::Bm25).await?, UNASKABLE)
                }
                found => (found?, UNASKABLE),
            }
        }
        Err(failure) if is_free && method == SearchMethod::Hybrid && failure.code == Code::TextTooLong => {
            let found = by(core, caller, &body, &preset, SearchMethod::Bm25).await?;
            (found, TOO_LONG)
        }
        found => (found?, why),
    };
    let was_added = body.expand.is_none() && found.expanded_by.as_ref().is_some_and(|terms| !terms.is_empty());
    let why = if was_added { format!("{why}; {AGREED}") } else { why.to_owned() };
    Ok(SearchResponse { why: Some(why), ..found })
}

/// Whether full text refuses the query, and not something else of the search.
fn is_unaskable(failure: &Failure) -> bool {
    failure.code == Code::InvalidField && failure.members.get("field").is_some_and(|field| field == "query")
}

async fn by(
    core: &Core,
    caller: &Caller,
    body: &AutoSearch,
    preset: &ContextConfig,
    method: SearchMethod,
) -> Result<SearchResponse, Failure> {
    let mut body = body.clone();
    match method {
        SearchMethod::Vector => {
            let mut body = VectorSearch::from(body);
            body.fill(preset);
            Box::pin(vector(core, caller, body)).await
        }
        SearchMethod::Fulltext => {
            // A context that names the method has it as `POST /search/fulltext` has it.
            let minus = if preset.method.is_none() { Minus::Words } else { Minus::Anything };
            Box::pin(fulltext_by(core, caller, FulltextSearch::from(body), minus)).await
        }
        SearchMethod::Bm25 => Box::pin(bm25(core, caller, Bm25Search::from(body))).await,
        SearchMethod::Maxsim => Box::pin(maxsim(core, caller, MaxsimSearch::from(body))).await,
        SearchMethod::Hybrid => {
            // Of the weights that were measured, equal ones find best.
            body.weights.get_or_insert_default();
            // A context that names the method has it as `POST /search/hybrid` has it, without terms that nobody asked for.
            let by_agreement = preset.method.is_none();
            Box::pin(hybrid_by(core, caller, HybridSearch::from(body), by_agreement)).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_goes_where_it_is_understood() {
        for (query, form) in [
            ("what to do when the radar gauge fails", Form::Words),
            ("heron", Form::Words),
            ("radar or sonar", Form::Words),
            ("state-of-the-art", Form::Words),
            ("Müller", Form::Words),
            ("7", Form::Words),
            ("2024", Form::Words),
            ("-5", Form::Words),
            ("works at -40 degrees", Form::Words),
            ("between -40°C and 85°C", Form::Words),
            ("- a dash", Form::Words),
            ("\"\"", Form::Words),
            ("the 5\" gun", Form::Words),
            ("雷达水位计", Form::Words),
            ("OR", Form::Words),
            ("etc.", Form::Words),
            ("E4021", Form::Identifier),
            ("max_scan_tuples", Form::Identifier),
            ("std::collections", Form::Identifier),
            ("svc.search?", Form::Identifier),
            ("docs/install.md", Form::Identifier),
            ("searchMethod", Form::Identifier),
            ("4711-0815", Form::Identifier),
            ("\"radar gauge\" fails", Form::Operators),
            ("“radar gauge”", Form::Operators),
            ("„radar gauge“ fails", Form::Operators),
            ("radar “gauge", Form::Words),
            ("radar -sonar", Form::Operators),
            ("radar OR sonar", Form::Operators),
        ] {
            assert_eq!(Form::of(query), form, "{query}");
        }
    }

    #[test]
    fn a_context_decides_before_the_query_and_the_model() {
        assert_eq!(route(Some(SearchMethod::Vector), "\"a phrase\"", false).0, SearchMethod::Vector);
        assert_eq!(route(None, "a question", true).0, SearchMethod::Hybrid);
        assert_eq!(route(None, "a question", false).0, SearchMethod::Bm25);
    }
}
