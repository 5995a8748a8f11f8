//! Token vectors of documents: what is stored of them, and how they score a query.
use crate::{
    core::Core,
    embedding::{EmbedError, Model, QueryError},
    error::OrFail,
    settings::Settings,
    store::{self, nodes::TextRow, token_vectors::TokenRows},
};
use half::f16;
use pgvector::HalfVector;
use std::{collections::HashMap, sync::Arc};
use svc_client::{
    Code, Failure,
    wire::{RunnerTextKind, Settled},
};
use svc_ids::DocumentId;
use svc_models::{ModelError, TokenVectors, sum_of_nearest, unpack};

/// The widths that have columns.
pub const WIDTHS: [usize; 3] = [256, 384, 512];

/// The documents whose token vectors are held at a time.
const AT_ONCE: usize = 256;
/// The texts whose token vectors the model makes in one call.
pub const TOGETHER: usize = 16;
/// A longer text exceeds every window, so that nobody counts its tokens.
const LONG_BYTES: usize = 1 << 20;

/// The sum of the cosines for each of the documents that has token vectors of the model.
pub async fn scores(core: &Core, query: &str, ids: &[DocumentId]) -> Result<HashMap<DocumentId, f64>, Failure> {
    let model = core.model().await?;
    if !has_a_width(&core.settings, model.native_width()) {
        return Err(none_stored(&core.settings, model.name(), model.native_width()));
    }
    let query = Arc::new(model.query_token_vectors(query.to_owned()).await.map_err(QueryError::from).or_fail()?);
    let mut scores = HashMap::with_capacity(ids.len());
    for ids in ids.chunks(AT_ONCE) {
        let mut conn = core.pool.acquire().await.or_fail()?;
        let packs = store::token_vectors::packs(&mut conn, ids, model.identity()).await.or_fail()?;
        drop(conn);
        let query = query.clone();
        // A pack of 512 tokens against a long query takes a hundred million products, so this does not run on the runtime's
        // threads.
        let scored = tokio::task::spawn_blocking(move || {
            let mut scores = Vec::with_capacity(packs.len());
            let mut by_width: HashMap<usize, TokenVectors> = HashMap::new();
            for pack in packs {
                let width = usize::try_from(pack.width).unwrap_or_default();
                let query = match by_width.entry(width) {
                    std::collections::hash_map::Entry::Occupied(known) => known.into_mut(),
                    std::collections::hash_map::Entry::Vacant(new) => new.insert(query.shortened(width)?),
                };
                scores.push((pack.document_id, sum_of_nearest(&query.values, &unpack(&pack.vectors), width)));
            }
            Ok::<_, ModelError>(scores)
        });
        scores.extend(scored.await.map_err(|error| Failure::new(Code::Internal, error))?.or_fail()?);
    }
    Ok(scores)
}

/// The token vectors of texts. An empty text, and one that is too long for them or that a runner does not take, has none; no text has any if the model
/// has none of the widths of the settings.
pub async fn made(
    settings: &Settings,
    model: &Model,
    rows: &[&TextRow],
) -> Result<Vec<(DocumentId, TokenVectors)>, EmbedError> {
    let rows: Vec<&TextRow> = rows.iter().copied().filter(|row| !row.content.is_empty()).collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if !has_a_width(settings, model.native_width()) {
        if let Some(problem) = widths_problem(settings, model.name(), model.native_width()) {
            tracing::warn!(texts = rows.len(), problem, "the texts get no token vectors");
        }
        return Ok(Vec::new());
    }
    let text = |row: &TextRow| super::text(&row.usetype, &row.title, &row.content);
    let mut found = Vec::with_capacity(rows.len());
    for part in rows.chunks(TOGETHER) {
        let part = short_enough(model, part.iter().map(|row| (row.id, text(row))).collect()).await?;
        let texts = part.iter().map(|(_, text)| text.clone()).collect();
        match model.token_vectors(texts, RunnerTextKind::Document).await {
            Ok(vectors) => found.extend(part.iter().map(|(id, _)| *id).zip(vectors)),
            // Only one of them need be at fault, and each by itself tells which.
            Err(error) if is_of_a_text(&error) => {
                for (id, text) in part {
                    match model.token_vectors(vec![text], RunnerTextKind::Document).await {
                        Ok(mut vectors) => found.extend(vectors.pop().map(|vectors| (id, vectors))),
                        Err(error) if is_of_a_text(&error) => {
                            tracing::warn!(document.id = id.0, %error, "a text gets no token vectors");
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Whether a text itself is why it has no token vectors, so that no other try helps.
pub fn is_of_a_text(error: &EmbedError) -> bool {
    matches!(
        error,
        EmbedError::TextRefused { .. }
            | EmbedError::Model(ModelError::TextTooLong { .. } | ModelError::NoDirection { .. })
    )
}

/// Those of these texts that fit the model's window. The others are sent to nobody: a runner may refuse a call whose texts are together too long for it.
async fn short_enough(
    model: &Model,
    texts: Vec<(DocumentId, String)>,
) -> Result<Vec<(DocumentId, String)>, EmbedError> {
    let model = model.clone();
    // To count takes time that is linear in the text.
    let counted = tokio::task::spawn_blocking(move || {
        let window = model.token_window();
        let mut short = Vec::with_capacity(texts.len());
        for (id, text) in texts {
            if text.len() <= LONG_BYTES && model.count_tokens(&text)? <= window {
                short.push((id, text));
            }
        }
        Ok::<_, EmbedError>(short)
    });
    counted.await.map_err(|error| ModelError::Tokenize { message: error.to_string() })?
}

/// Makes the token vectors that documents should have and lack, for example because they were embedded before an index with token vectors
/// covered them.
pub async fn fill(core: &Core, ids: &[DocumentId]) -> Result<(), Failure> {
    let mut conn = core.pool.acquire().await.or_fail()?;
    let wanted = store::token_vectors::wanted(&mut conn, ids).await.or_fail()?;
    drop(conn);
    // Without a model there is no vector of any kind.
    if wanted.is_empty() || core.embedder.is_none() {
        return Ok(());
    }
    let model = core.model().await?;
    if !has_a_width(&core.settings, model.native_width()) {
        return Ok(());
    }
    let mut conn = core.pool.acquire().await.or_fail()?;
    let present = store::token_vectors::present(&mut conn, &wanted, model.identity()).await.or_fail()?;
    drop(conn);
    let missing: Vec<DocumentId> = wanted.into_iter().filter(|id| !present.contains(id)).collect();
    for part in missing.chunks(2 * TOGETHER) {
        while !fill_some(core, part).await? {}
    }
    Ok(())
}

/// Says whether it did. It stores nothing if another model began to serve meanwhile; whoever builds an index does not come back to these documents.
async fn fill_some(core: &Core, ids: &[DocumentId]) -> Result<bool, Failure> {
    let model = core.model().await?;
    let mut conn = core.pool.acquire().await.or_fail()?;
    // A change after this counts as one, even if the text read below has it already.
    let seen = store::batch::times(&mut conn, ids).await.or_fail()?;
    let texts = store::nodes::texts(&mut conn, ids).await.or_fail()?;
    drop(conn);
    let settled: Vec<&TextRow> = texts.iter().filter(|row| row.settled.0 == Settled::Settled).collect();
    let made = made(&core.settings, &model, &settled).await.or_fail()?;
    let mut tx = store::transaction::begin(&core.pool).await.or_fail()?;
    store::locks::documents(&mut tx, ids).await.or_fail()?;
    // What has changed meanwhile has a task of its own, which makes them.
    let unchanged = store::batch::unchanged(&mut tx, &seen).await.or_fail()?;
    let places = store::batch::places(&mut tx, ids).await.or_fail()?;
    for (id, tokens) in made.iter().filter(|(id, _)| unchanged.contains(id)) {
        if let Some(place) = places.iter().find(|place| place.id() == *id) {
            let rows = rows(&core.settings, model.identity(), tokens)?;
            store::token_vectors::replace(&mut tx, place, &rows).await.or_fail()?;
        }
    }
    if core.is_replaced(&mut tx, model.identity()).await.or_fail()? {
        return Ok(false);
    }
    tx.commit().await.or_fail()?;
    Ok(true)
}

/// The tokens of a document to store: the most important share of them, in the widths of the settings. If the model has none of these, this
/// fails.
pub fn rows<'a>(settings: &Settings, model: &'a str, tokens: &TokenVectors) -> Result<TokenRows<'a>, Failure> {
    let kept = tokens.most_important(settings.token_top_percent);
    let mut vectors: [Vec<HalfVector>; 3] = Default::default();
    let (mut pack, mut pack_width) = (Vec::new(), 0);
    for (column, width) in vectors.iter_mut().zip(WIDTHS) {
        // The start refuses a width beyond the model's, unless a runner was away and the model was not known.
        if !settings.token_embed_dims.contains(&width) || width > tokens.width {
            continue;
        }
        let short = tokens.shortened(width).or_fail()?;
        let rows = kept.iter().filter_map(|&token| short.rows().nth(token));
        let halves: Vec<Vec<f16>> = rows.map(|row| row.iter().map(|&x| f16::from_f32(x)).collect()).collect();
        pack = halves.iter().flatten().flat_map(|half| half.to_le_bytes()).collect();
        pack_width = width;
        column.extend(halves.into_iter().map(HalfVector::from));
    }
    if pack_width == 0 {
        return Err(none_stored(settings, model, tokens.width));
    }
    Ok(TokenRows {
        model,
        places: kept.iter().map(|&token| token as i32).collect(),
        token_ids: kept.iter().map(|&token| tokens.token_ids[token] as i32).collect(),
        tiers: kept.iter().map(|&token| i16::from(tokens.tiers[token])).collect(),
        vectors,
        width: pack_width as i32,
        pack,
    })
}

/// Whether the settings name a width that a model of this width has. Without one, documents have no token vectors.
pub fn has_a_width(settings: &Settings, native_width: usize) -> bool {
    settings.token_embed_dims.iter().any(|&width| width <= native_width)
}

/// The 501 for who needs token vectors where none are stored.
pub fn none_stored(settings: &Settings, model: &str, native_width: usize) -> Failure {
    let problem = widths_problem(settings, model, native_width);
    let detail =
        problem.unwrap_or_else(|| "no token vectors are stored here: SVC_TOKEN_EMBED_DIMS names no width".into());
    Failure::new(Code::NotConfigured, detail)
        .with("setting", "SVC_TOKEN_EMBED_DIMS")
        .with("remedy", "name a width there that the model has, or search by vectors, words or both")
}

/// What prevents the settings' widths from being stored with a model of this width.
pub fn widths_problem(settings: &Settings, model: &str, native_width: usize) -> Option<String> {
    let widest = *settings.token_embed_dims.iter().max()?;
    let fitting: Vec<String> = WIDTHS.iter().filter(|&&width| width <= native_width).map(usize::to_string).collect();
    let instead = match fitting.is_empty() {
        true => "[], which stores none".to_owned(),
        false => format!("of {}", fitting.join(", ")),
    };
    (widest > native_width).then(|| {
        format!(
            "SVC_TOKEN_EMBED_DIMS asks for token vectors of {widest} components, but the model {model} gives {native_width}; \
             take {instead}, or a wider SVC_EMBEDDING_MODEL"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn settings(widths: &str) -> Settings {
        let set = [("HOME", "/nonexistent"), ("SVC_TOKEN_EMBED_DIMS", widths)];
        let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Settings::load(Some(Path::new("/dev/null")), set.into_iter()).unwrap()
    }

    /// One token of a model of this width.
    fn token(width: usize) -> TokenVectors {
        TokenVectors {
            token_ids: vec![7],
            offsets: vec![0..3; 1],
            width,
            values: vec![1.0; width],
            importance: vec![1.0],
            tiers: vec![10],
        }
    }

    #[test]
    fn widths_beyond_the_model_s_are_left_out_and_without_any_other_there_are_no_rows() {
        for (widths, stored) in [("[256]", 256_i32), ("[256, 384]", 384), ("[384, 512]", 384)] {
            let (settings, token) = (settings(widths), token(384));
            let rows = rows(&settings, "model@0", &token).unwrap();
            assert_eq!((rows.width, rows.pack.len(), rows.places), (stored, 2 * stored as usize, vec![0]), "{widths}");
        }
        for (widths, width, said) in
            [("[512]", 384, "take of 256, 384"), ("[256]", 32, "take []"), ("[]", 384, "no width")]
        {
            let failure = rows(&settings(widths), "model@0", &token(width)).map(|rows| rows.width).unwrap_err();
            assert_eq!(
                (failure.code, failure.members["setting"].as_str()),
                (Code::NotConfigured, Some("SVC_TOKEN_EMBED_DIMS"))
            );
            assert!(failure.detail.contains(said), "{failure:?}");
            assert!(!has_a_width(&settings(widths), width));
        }
    }

    #[test]
    fn a_model_that_is_too_narrow_for_every_width_can_be_started_without_token_vectors() {
        assert!(widths_problem(&settings("[256]"), "model", 32).is_some_and(|problem| problem.contains("take []")));
        assert_eq!(widths_problem(&settings("[]"), "model", 32), None);
    }
}
