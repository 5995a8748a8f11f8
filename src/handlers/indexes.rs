//! Search indexes, which are the owner's to manage.
use super::documents::{id_cursor, page_by_id};
use crate::{
    access::Caller,
    admission::Place,
    error::{IntoFailure, OrFail},
    registry::Handle,
    search::{bm25, maxsim},
    service::Service,
    store::{
        self,
        audit::Entry,
        away::{QUERY_CANCELED, sql_state},
        indexes::{
            self, DEFAULT, IndexError,
            manage::{self, IndexRow, Removed},
        },
        transaction::Transaction,
    },
};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::HashSet;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{
        AuditAct, IndexAnalyzer, IndexCapabilities, IndexLanguage, IndexPage, IndexResponse, IndexState,
        IndexStopWords, IndexedDocument, MemberPage,
    },
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{AnalyzerConfig, Config, Language, StopWords};

/// How many batches of a build a call does itself; a worker does the rest.
const BATCHES: usize = 5;
/// The same of an index that keeps token vectors, which the model has to make: one has documents, and the next finds the end of few.
const BATCHES_OF_TOKENS: usize = 2;

fn no_index(id: IndexId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no index {id}"))
}

fn taken(name: &str) -> Failure {
    Failure::new(Code::Conflict, format!("there is an index `{name}` already")).with("remedy", "choose another name")
}

fn failure(error: IndexError) -> Failure {
    match error {
        IndexError::Unknown(id) => no_index(id),
        IndexError::Config(problem) => {
            let field = problem.0.split([' ', ';']).next().unwrap_or("analyzer").to_owned();
            Failure::field(&field, problem)
        }
        IndexError::Database(error) => error.into_failure(),
    }
}

/// Why what an index holds could not be taken out of it.
fn not_emptied(error: IndexError) -> Failure {
    match error {
        IndexError::Database(error) if sql_state(&error) == QUERY_CANCELED => {
            Failure::new(Code::TimedOut, "the index holds too much to be emptied in the time of a request")
                .with("setting", "SVC_REQUEST_TIMEOUT_SECONDS")
                .with("remedy", "raise SVC_REQUEST_TIMEOUT_SECONDS and try again; what is indexed is put off meanwhile")
        }
        error => failure(error),
    }
}

/// Has the statements of a transaction that may empty a locked index take long: what it holds goes whole.
async fn allow_emptying(service: &Service, conn: &mut PgConnection) -> Result<(), Failure> {
    let limit = service.settings.statement_timeout.max(service.settings.request_timeout);
    store::transaction::allow(conn, limit).await.or_fail()
}

/// The language as the analyzer knows it: both have one word for it.
fn language(language: IndexLanguage) -> Language {
    Language::NAMES
        .iter()
        .find(|(name, _)| *name == language.as_str())
        .map_or(Language::None, |(_, language)| *language)
}

fn analyzer(wire: IndexAnalyzer) -> AnalyzerConfig {
    let stop_words = wire.stop_words.map(|words| match words {
        IndexStopWords::Keep => StopWords::Keep,
        IndexStopWords::Remove => StopWords::Remove,
    });
    AnalyzerConfig { language: language(wire.language), stop_words, ..AnalyzerConfig::default() }
}

fn shown(row: IndexRow) -> IndexResponse {
    let config = row.config.0;
    let name =
        Language::NAMES.iter().find(|(_, language)| *language == config.analyzer.language).map(|(name, _)| *name);
    IndexResponse {
        id: row.id.0,
        name: row.name,
        k1: config.k1,
        b: config.b,
        analyzer: IndexAnalyzer {
            language: name.and_then(|name| name.parse().ok()).unwrap_or(IndexLanguage::None),
            stop_words: config.analyzer.stop_words.map(|words| match words {
                StopWords::Keep => IndexStopWords::Keep,
                StopWords::Remove => IndexStopWords::Remove,
            }),
        },
        title_weight: config.title_weight,
        title_paths: config.title_paths,
        capabilities: row.capabilities.0,
        restricted: row.restricted,
        members: row.members,
        documents: row.documents.max(0),
        state: if row.built_to.is_some() { IndexState::Building } else { IndexState::Ready },
        created_at: row.created_at,
    }
}

async fn read(conn: &mut PgConnection, id: IndexId) -> Result<IndexResponse, Failure> {
    manage::read(conn, id).await.or_fail()?.map(shown).ok_or_else(|| no_index(id))
}

/// Begins a transaction that changes which documents an index covers. Whoever creates documents with their postings at the same time waits, and sees the change,
/// or has ended before it, and then the build finds the documents. Without an index it is for a new one. Also returns the slot to keep until the transaction ends.
async fn begin_covering(
    service: &Service,
    caller: &Caller,
    index: Option<IndexId>,
) -> Result<(Place, Transaction), Failure> {
    let moving = service.admission.moving(caller.principal_id()).await?;
    Ok((moving, store::transaction::begin_covering(&service.pool, index).await.or_fail()?))
}

/// Builds what it can at once, and answers with the index as it is then.
async fn build(service: &Service, id: IndexId) -> Result<IndexResponse, Failure> {
    let mut conn = service.pool.acquire().await.or_fail()?;
    let index = read(&mut conn, id).await?;
    drop(conn);
    let batches = if index.capabilities.maxsim { BATCHES_OF_TOKENS } else { BATCHES };
    if let Err(error) = bm25::build(service, id, batches).await {
        // What was asked for is stored, and a worker goes on with the build.
        tracing::warn!(index.id = id.0, %error, "an index is not built at once");
    }
    let mut conn = service.pool.acquire().await.or_fail()?;
    read(&mut conn, id).await
}

/// Locks the documents that are to be members of an index.
async fn lock_members(conn: &mut PgConnection, members: &[i64]) -> Result<(), Failure> {
    let known: HashSet<i64> = manage::lock_documents(conn, members).await.or_fail()?.into_iter().collect();
    match members.iter().find(|member| !known.contains(member)) {
        None => Ok(()),
        Some(missing) => Err(Failure::field("members", format!("there is no document {missing}"))),
    }
}

/// Records what the owner does with an index.
async fn record(
    conn: &mut PgConnection,
    caller: &Caller,
    act: AuditAct,
    index: &IndexResponse,
    detail: Option<(&str, Value)>,
) -> Result<(), Failure> {
    let entry = Entry::new(act).with("index_id", index.id).with("name", index.name.as_str());
    let entry = detail.into_iter().fold(entry, |entry, (name, value)| entry.with(name, value));
    caller.record(conn, entry).await.or_fail()
}

/// The index that the settings give its name and configuration is none to rename or delete.
fn not_the_default(name: &str, what: &str) -> Result<(), Failure> {
    match name {
        DEFAULT => Err(Failure::new(Code::Conflict, format!("the index `{DEFAULT}` cannot be {what}"))
            .with("remedy", "create another one, and name it in searches")),
        _ => Ok(()),
    }
}

impl Handle<ops::create_index> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::create_index>) -> Result<IndexResponse, Failure> {
        let new = call.body.0;
        let config = Config {
            k1: new.k1.unwrap_or(self.settings.bm25_k1),
            b: new.b.unwrap_or(self.settings.bm25_b),
            analyzer: new.analyzer.map_or_else(AnalyzerConfig::default, analyzer),
            title_weight: new.title_weight.unwrap_or(Config::default().title_weight),
            title_paths: new.title_paths.unwrap_or(self.settings.title_paths),
        };
        let capabilities = new.capabilities.unwrap_or(IndexCapabilities { bm25: true, maxsim: false });
        let (moving, mut tx) = begin_covering(self, caller, None).await?;
        if let Some(members) = &new.members {
            lock_members(&mut tx, members).await?;
        }
        // What nobody set here is as in the other indexes.
        let is_set = self.settings.is_set("SVC_BM25_EXCLUDE_USETYPES");
        let excluded = is_set.then_some(self.settings.bm25_exclude_usetypes.as_slice());
        let made = manage::insert(&mut tx, &new.name, &config, capabilities, excluded).await.map_err(failure)?;
        let id = made.ok_or_else(|| taken(&new.name))?;
        if let Some(members) = &new.members {
            manage::add_members(&mut tx, id, members).await.or_fail()?;
        }
        let index = read(&mut tx, id).await?;
        record(&mut tx, caller, AuditAct::IndexCreate, &index, Some(("members", index.members.into()))).await?;
        tx.commit().await.or_fail()?;
        drop(moving);
        build(self, id).await
    }
}

impl Handle<ops::list_indexes> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_indexes>) -> Result<IndexPage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = manage::page(&mut conn, IndexId(after), limit + 1).await.or_fail()?;
        let (indexes, next_cursor) = page_by_id(rows.into_iter().map(shown).collect(), limit, |index| index.id);
        Ok(IndexPage { indexes, next_cursor })
    }
}

impl Handle<ops::read_index> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_index>) -> Result<IndexResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        read(&mut conn, IndexId(call.path.id)).await
    }
}

impl Handle<ops::update_index> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::update_index>) -> Result<IndexResponse, Failure> {
        let (id, change) = (IndexId(call.path.id), call.body.0);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        if let Some(name) = &change.name {
            // Of two callers that rename it, the second one finds the contexts by the name that the first one gave.
            indexes::postings::lock_compaction(&mut tx, id).await.or_fail()?;
            store::contexts::follow_index(&mut tx, id, name).await.or_fail()?;
        }
        let old = manage::lock(&mut tx, id).await.map_err(failure)?;
        let before = read(&mut tx, id).await?;
        if let Some(name) = change.name.as_deref().filter(|name| *name != before.name) {
            not_the_default(&before.name, "renamed")?;
            match manage::rename(&mut tx, id, name).await {
                Err(error) if sql_state(&error) == "23505" => return Err(taken(name)),
                renamed => renamed.or_fail()?,
            }
        }
        let new = Config {
            k1: change.k1.unwrap_or(old.k1),
            b: change.b.unwrap_or(old.b),
            analyzer: change.analyzer.map_or(old.analyzer, analyzer),
            title_weight: change.title_weight.unwrap_or(old.title_weight),
            title_paths: change.title_paths.unwrap_or(old.title_paths),
        };
        if new != old {
            // Where they are set, a restart would undo it.
            let settings = "SVC_BM25_K1, SVC_BM25_B, SVC_BM25_TITLE_WEIGHT, SVC_TITLE_PATHS and SVC_LANGUAGE";
            not_the_default(&before.name, &format!("changed: {settings} configure it"))?;
        }
        if new.same_postings(&old) {
            indexes::configure(&mut tx, id, &new).await.map_err(failure)?;
        } else {
            allow_emptying(self, &mut tx).await?;
            manage::build_anew(&mut tx, id, &old, &new).await.map_err(not_emptied)?;
        }
        let changed = serde_json::to_value(&change).map_err(|error| Failure::new(Code::Internal, error))?;
        record(&mut tx, caller, AuditAct::IndexUpdate, &before, Some(("change", changed))).await?;
        tx.commit().await.or_fail()?;
        build(self, id).await
    }
}

impl Handle<ops::delete_index> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::delete_index>) -> Result<(), Failure> {
        let id = IndexId(call.path.id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        manage::lock(&mut tx, id).await.map_err(failure)?;
        let index = read(&mut tx, id).await?;
        not_the_default(&index.name, "deleted")?;
        allow_emptying(self, &mut tx).await?;
        manage::delete(&mut tx, id).await.map_err(|error| not_emptied(error.into()))?;
        record(&mut tx, caller, AuditAct::IndexDelete, &index, None).await?;
        tx.commit().await.or_fail()
    }
}

impl Handle<ops::list_index_members> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_index_members>) -> Result<MemberPage, Failure> {
        let id = IndexId(call.path.id);
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        read(&mut conn, id).await?;
        let rows = manage::members(&mut conn, id, DocumentId(after), limit + 1).await.or_fail()?;
        let (members, next_cursor) = page_by_id(rows.into_iter().map(|id| id.0).collect(), limit, |id: &i64| *id);
        Ok(MemberPage { members, next_cursor })
    }
}

impl Handle<ops::add_index_members> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::add_index_members>) -> Result<IndexResponse, Failure> {
        let (id, members) = (IndexId(call.path.id), call.body.0.members);
        let (moving, mut tx) = begin_covering(self, caller, Some(id)).await?;
        lock_members(&mut tx, &members).await?;
        let config = manage::lock(&mut tx, id).await.map_err(failure)?;
        let index = read(&mut tx, id).await?;
        not_the_default(&index.name, "narrowed to some subtrees")?;
        manage::add_members(&mut tx, id, &members).await.or_fail()?;
        match index.restricted {
            true => manage::cover(&mut tx, id, &members).await.or_fail()?,
            // It covered everything.
            false => {
                allow_emptying(self, &mut tx).await?;
                manage::rebuild(&mut tx, id, &config).await.map_err(not_emptied)?;
            }
        }
        record(&mut tx, caller, AuditAct::IndexMemberAdd, &index, Some(("members", members.into()))).await?;
        tx.commit().await.or_fail()?;
        drop(moving);
        build(self, id).await
    }
}

impl Handle<ops::remove_index_member> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::remove_index_member>) -> Result<(), Failure> {
        let (id, member) = (IndexId(call.path.id), DocumentId(call.path.document_id));
        let (moving, mut tx) = begin_covering(self, caller, Some(id)).await?;
        manage::lock(&mut tx, id).await.map_err(failure)?;
        match manage::remove_member(&mut tx, id, member).await.or_fail()? {
            Removed::Gone => {}
            Removed::Unknown => return Err(Failure::new(Code::NotFound, format!("index {id} has no member {member}"))),
            Removed::Last => {
                let detail = format!("without its last member index {id} would cover nothing");
                return Err(Failure::new(Code::Conflict, detail)
                    .with("remedy", "add another member first, or delete the index"));
            }
        }
        manage::cover(&mut tx, id, &[member.0]).await.or_fail()?;
        let index = read(&mut tx, id).await?;
        record(&mut tx, caller, AuditAct::IndexMemberRemove, &index, Some(("member", member.0.into()))).await?;
        tx.commit().await.or_fail()?;
        drop(moving);
        build(self, id).await.map(|_| ())
    }
}

impl Handle<ops::refresh_index> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::refresh_index>) -> Result<IndexResponse, Failure> {
        let id = IndexId(call.path.id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let config = manage::lock(&mut tx, id).await.map_err(failure)?;
        allow_emptying(self, &mut tx).await?;
        manage::rebuild(&mut tx, id, &config).await.map_err(not_emptied)?;
        let index = read(&mut tx, id).await?;
        record(&mut tx, caller, AuditAct::IndexRefresh, &index, None).await?;
        tx.commit().await.or_fail()?;
        build(self, id).await
    }
}

impl Handle<ops::index_document> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::index_document>) -> Result<IndexedDocument, Failure> {
        let (id, document) = (IndexId(call.path.id), DocumentId(call.path.document_id));
        let mut conn = self.pool.acquire().await.or_fail()?;
        read(&mut conn, id).await?;
        if store::documents::read(&mut conn, &store::scope::Readable::everything(), document, false)
            .await
            .or_fail()?
            .is_none()
        {
            return Err(Failure::no_document(document.0));
        }
        drop(conn);
        maxsim::fill(self, &[document]).await?;
        let held = bm25::put(self, id, &[document], None).await.or_fail()?;
        Ok(IndexedDocument { index_id: id.0, document_id: document.0, indexed: held.contains(&document) })
    }
}
