//! Embeds documents on request: the vector of one, and the vectors of the tokens of one or many.
use crate::{
    access::Caller,
    embedding::{EmbedError, Model},
    error::OrFail,
    ingest::{postings::Postings, segments::outdate_sums, sums},
    registry::Handle,
    search::{self, maxsim, titles},
    service::Service,
    store::{self, evidence::Evidence, nodes::TextRow, places::Place, token_vectors::TokenRows, vectors::Weighted},
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::{
    collections::{HashMap, HashSet},
    slice,
};
use svc_actors::{Lane, Lanes, WriteMode};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{EmbedResponse, RunnerTextKind, Settled, TokensAnswer, TokensBatchResponse, TokensResponse},
};
use svc_ids::DocumentId;
use svc_models::{ModelError, TokenVectors};

impl Handle<ops::embed_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::embed_document>) -> Result<EmbedResponse, Failure> {
        let id = DocumentId(call.path.id);
        let asked = match (call.query.with_tokens, call.body.0.and_then(|body| body.with_tokens)) {
            (Some(query), Some(body)) if query != body => {
                return Err(Failure::field("with_tokens", format!("the query says {query}, but the body says {body}")));
            }
            (query, body) => query.or(body),
        };
        let row = row(self, caller, id).await?;
        let text = search::text(&row.usetype, &row.title, &row.content);
        let _place = self.admission.embed(caller.principal_id()).await?;
        let model = self.model().await?;
        let width = model.native_width();
        let has_tokens = maxsim::has_a_width(&self.settings, width);
        let with_tokens = asked.unwrap_or(has_tokens);
        if with_tokens && !has_tokens {
            return Err(or_only_the_vector(&model, maxsim::none_stored(&self.settings, model.name(), width)));
        }
        // The tokens come first, because a text may be too long for them and not for the document's vector.
        let tokens = match with_tokens {
            true => {
                let tokens = tokens(self, &model, text.clone()).await;
                Some(tokens.map_err(|failure| or_only_the_vector(&model, failure))?.0)
            }
            false => None,
        };
        let before = if self.settings.title_paths { titles::before(&row) } else { Vec::new() };
        // As in ingestion, it has as many titles as there is room for; the farthest are left out first.
        let mut left_out = 0;
        let mut embeddings = loop {
            let behind = titles::join(before.iter().skip(left_out).copied(), &text);
            match model.embed_documents(vec![behind]).await {
                Err(EmbedError::Model(ModelError::TextTooLong { .. })) if left_out < before.len() => left_out += 1,
                embedded => break embedded.or_fail()?,
            }
        };
        let titles = before.len() - left_out;
        // A word may be as long as a text, so this does not run on the runtime's threads.
        let is_unknown = {
            let model = model.clone();
            tokio::task::spawn_blocking(move || model.is_unknown(&text))
        };
        if is_unknown.await.map_err(|error| Failure::new(Code::Internal, error))?.or_fail()? {
            return Err(Failure::field("id", format!("the model knows no token of the text of document {id}"))
                .with("remedy", "take another model (SVC_EMBEDDING_MODEL); a search by words finds the document"));
        }
        let stored = |embedding| (Weighted::new(model.native_width(), embedding), model.identity());
        let vector = embeddings.pop().map(stored).map(|(vector, model)| Vector { vector, model, titles });
        write(self, caller, &row, vector, tokens.as_ref()).await?;
        let token_count = tokens.map_or(0, |rows| rows.places.len());
        Ok(EmbedResponse { document_id: id.0, embedded: true, with_tokens, token_count })
    }
}

impl Handle<ops::embed_tokens> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::embed_tokens>) -> Result<TokensResponse, Failure> {
        let id = DocumentId(call.path.id);
        let row = row(self, caller, id).await?;
        let _place = self.admission.embed(caller.principal_id()).await?;
        let model = self.model().await?;
        store_tokens(self, caller, &model, &row, None).await
    }
}

impl Handle<ops::embed_many_tokens> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::embed_many_tokens>,
    ) -> Result<TokensBatchResponse, Failure> {
        let ids = call.body.0.document_ids;
        let _place = self.admission.embed(caller.principal_id()).await?;
        // A document that is named twice has one answer, which took one call of the model.
        let mut answers = HashMap::with_capacity(ids.len());
        let mut seen = HashSet::new();
        let distinct: Vec<i64> = ids.iter().copied().filter(|id| seen.insert(*id)).collect();
        for ids in distinct.chunks(maxsim::TOGETHER) {
            let mut rows = Vec::with_capacity(ids.len());
            for id in ids {
                rows.push(alone(row(self, caller, DocumentId(*id)).await)?);
            }
            let texts: Vec<&TextRow> = rows.iter().filter_map(|row| row.as_ref().ok()).collect();
            // Another model may serve by now than when the call began.
            let model = self.model().await?;
            let made = tokens_of_all(&model, &texts).await?;
            for (id, row) in ids.iter().zip(rows) {
                let answer = match row {
                    Ok(row) => store_tokens(self, caller, &model, &row, made.get(&row.id)).await,
                    Err(failure) => Err(failure),
                };
                let (stored, failure) = match alone(answer)? {
                    Ok(stored) => (Some(stored), None),
                    Err(failure) => (None, Some(caller.told_failure(failure))),
                };
                answers.insert(*id, TokensAnswer { document_id: *id, stored, failure });
            }
        }
        let documents = ids.iter().filter_map(|id| answers.get(id).cloned()).collect();
        Ok(TokensBatchResponse { documents })
    }
}

/// The inner result is the answer for one document. What the whole service lacks ends the call, because each other document would wait for it as long.
fn alone<T>(answer: Result<T, Failure>) -> Result<Result<T, Failure>, Failure> {
    match answer {
        Err(failure) if matches!(failure.code, Code::Unavailable | Code::StorageFull | Code::NotConfigured) => {
            Err(failure)
        }
        answer => Ok(answer),
    }
}

/// The token vectors of texts, made in one call of the model. There are none if the model refuses any text; each text by itself then shows which.
async fn tokens_of_all(model: &Model, rows: &[&TextRow]) -> Result<HashMap<DocumentId, TokenVectors>, Failure> {
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let texts = rows.iter().map(|row| search::text(&row.usetype, &row.title, &row.content)).collect();
    match model.token_vectors(texts, RunnerTextKind::Document).await {
        Err(error) if maxsim::is_of_a_text(&error) => Ok(HashMap::new()),
        made => Ok(rows.iter().map(|row| row.id).zip(made.or_fail()?).collect()),
    }
}

/// Stores the token vectors of a text. It makes them if they are missing, and fails with the model's reason if the model refuses the text.
async fn store_tokens(
    service: &Service,
    caller: &Caller,
    model: &Model,
    row: &TextRow,
    made: Option<&TokenVectors>,
) -> Result<TokensResponse, Failure> {
    let (rows, text_tokens) = match made {
        Some(made) => (maxsim::rows(&service.settings, model.identity(), made)?, made.len()),
        None => tokens(service, model, search::text(&row.usetype, &row.title, &row.content)).await?,
    };
    write(service, caller, row, None, Some(&rows)).await?;
    Ok(TokensResponse {
        document_id: row.id.0,
        model: rows.model.to_owned(),
        text_tokens,
        token_count: rows.places.len(),
        widths: service.settings.token_embed_dims.clone(),
    })
}

/// Offers the document's vector alone, if the text fits the window that the model has for that, or if no token vectors are stored here.
fn or_only_the_vector(model: &Model, failure: Failure) -> Failure {
    let tokens = failure.members.get("token_count").and_then(Value::as_u64);
    let fits = tokens.is_some_and(|tokens| tokens <= model.document_window() as u64);
    match failure.code {
        Code::TextTooLong if fits => failure.with(
            "remedy",
            "split the text into documents that fit, or ask only for a document vector (with_tokens=false)",
        ),
        Code::NotConfigured => failure.with(
            "remedy",
            "ask only for a document vector (with_tokens=false), or name a width in SVC_TOKEN_EMBED_DIMS that the model has",
        ),
        _ => failure,
    }
}

/// A document with a text. A container has none, because it is found by its children's texts.
async fn row(service: &Service, caller: &Caller, id: DocumentId) -> Result<TextRow, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    if !store::documents::is_readable(&mut conn, &caller.readable(), id).await.or_fail()? {
        return Err(Failure::no_document(id.0));
    }
    caller.writes(&mut conn, id).await.or_fail()??;
    let row = store::nodes::texts(&mut conn, &[id]).await.or_fail()?.pop();
    let row = row.ok_or_else(|| Failure::no_document(id.0))?;
    if row.content.is_empty() {
        return Err(Failure::field("id", format!("document {id} has no text of its own"))
            .with("remedy", "embed the documents under it"));
    }
    Ok(row)
}

/// The rows to store, and how many tokens the text has.
async fn tokens<'a>(service: &Service, model: &'a Model, text: String) -> Result<(TokenRows<'a>, usize), Failure> {
    let mut tokens = model.token_vectors(vec![text], RunnerTextKind::Document).await.or_fail()?;
    let tokens = tokens.pop().ok_or_else(|| Failure::new(Code::Internal, "the model returned no answer"))?;
    Ok((maxsim::rows(&service.settings, model.identity(), &tokens)?, tokens.len()))
}

/// The vector of a text, and how many titles it was embedded with.
struct Vector<'a> {
    vector: Weighted,
    model: &'a str,
    titles: usize,
}

/// Stores the vectors of a text, and its postings with the document's vector; 409 if the document has another text, or other titles above it, by now, or
/// if another model serves.
async fn write(
    service: &Service,
    caller: &Caller,
    read: &TextRow,
    vector: Option<Vector<'_>>,
    tokens: Option<&TokenRows<'_>>,
) -> Result<(), Failure> {
    let id = read.id;
    // The task that was to embed the document may have ended without doing so, and nothing else puts it into the indexes of words.
    let postings = match vector.is_some() && read.settled.0 == Settled::Settled {
        true => Some(Postings::prepare(service, slice::from_ref(read)).await.or_fail()?),
        false => None,
    };
    let mut tx = store::transaction::begin(&service.pool).await.or_fail()?;
    let locked = match vector.is_some() {
        true => lock_with_containers(&mut tx, caller, id).await?,
        false => Vec::new(),
    };
    let Some(place) = store::places::lock_for_change(&mut tx, &caller.writable(), id).await.or_fail()? else {
        return Err(caller.refusal(&mut tx, id).await.or_fail()?);
    };
    let now = store::nodes::texts(&mut tx, &[id]).await.or_fail()?;
    let text = |row: &TextRow| (search::text(&row.usetype, &row.title, &row.content), row.titles.clone());
    if now.iter().all(|row| text(row) != text(read)) {
        return Err(Failure::new(
            Code::Conflict,
            format!("the text of document {id} changed while it was being embedded"),
        )
        .with("remedy", "embed it again"));
    }
    store::reservations::hold_for_edit(&mut tx, &place, WriteMode::Itself).await.or_fail()?;
    let is_found_anew = vector.is_some();
    let made_by = vector.as_ref().map(|vector| vector.model).or(tokens.map(|tokens| tokens.model));
    if let Some(Vector { vector, model, titles }) = vector {
        let had_it = store::vectors::has(&mut tx, id, &vector, model).await.or_fail()?;
        store::vectors::set(&mut tx, &place, &[id], &[vector], model).await.or_fail()?;
        let file = store::edits::part(&mut tx, &place).await.or_fail()?.and_then(|part| part.file);
        store::edits::forget_notes(&mut tx, &[id], file).await.or_fail()?;
        if titles > 0 {
            let note = json!({"windows": 1, "titles": titles});
            store::evidence::record(&mut tx, id, Evidence::Embed, &note).await.or_fail()?;
        }
        let badges = &service.settings.task_badges;
        outdate_sums(badges, &mut tx, &[id]).await.or_fail()?;
        // Whoever has many texts embedded again need not wait for the sums of all of them each time.
        let is_as_before = had_it && !store::rollups::lack_vectors(&mut tx, &locked, model).await.or_fail()?;
        if let Some(file) = file.filter(|_| !is_as_before) {
            let above = place.containers(file.document()).into_iter().rev().map(|container| container.id());
            let levels: Vec<Vec<DocumentId>> = above.filter(|id| locked.contains(id)).map(|id| vec![id]).collect();
            sums::make_anew(badges, &mut tx, &levels, file, model).await.or_fail()?;
        }
    }
    if let Some(tokens) = tokens {
        store::token_vectors::replace(&mut tx, &place, tokens).await.or_fail()?;
    }
    // What is in flight again by now has a task that writes them.
    if let Some(postings) = postings.filter(|_| now.iter().all(|row| row.settled.0 == Settled::Settled)) {
        postings.write(service, &mut tx).await.or_fail()?;
    }
    if let Some(model) = made_by
        && service.is_replaced(&mut tx, model).await.or_fail()?
    {
        let detail = format!("another model serves by now than the one that embedded document {id}");
        return Err(Failure::new(Code::Conflict, detail).with("remedy", "embed it again"));
    }
    tx.commit().await.or_fail()?;
    if is_found_anew {
        service.wake.notify(Lanes::of(Lane::Model));
    }
    Ok(())
}

/// Locks a document and the containers of its file above it, whose vectors are made of its own. Returns these containers.
async fn lock_with_containers(
    conn: &mut PgConnection,
    caller: &Caller,
    id: DocumentId,
) -> Result<Vec<DocumentId>, Failure> {
    let place = caller.writes(conn, id).await.or_fail()??;
    let file = store::edits::part(conn, &place).await.or_fail()?.and_then(|part| part.file);
    let containers = file.map(|file| place.containers(file.document())).unwrap_or_default();
    let containers: Vec<DocumentId> = containers.iter().map(Place::id).collect();
    store::locks::documents(conn, &[&containers[..], &[id]].concat()).await.or_fail()?;
    Ok(containers)
}
