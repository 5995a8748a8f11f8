//! Whether the time of an answer tells that there is a document which its caller may not read: each kind of call with ids of such documents
//! and with ids that never were, in turn.
use crate::{
    figure::{BoxError, Figure, median},
    sandbox::with_app,
    uploads,
};
use reqwest::{Client as Http, Method};
use serde_json::{Value, json};
use std::time::Instant;
use svc::{app::App, settings::Settings};
use svc_client::{
    Client, Json, Remote,
    wire::{
        BatchItem, DocumentPath, NewApiToken, NewBatch, NewDocument, NewPrincipal, PrincipalKind, PrincipalPath,
        WaitQuery,
    },
};

/// How many documents nobody but the owner may read, and how many ids that never were are asked for beside them.
const HIDDEN: usize = 200;
/// What no sequence of ids comes to in a bench.
const NEVER: i64 = 1 << 40;
/// The rounds that warm caches and connections, and do not count.
const WARMING: usize = 20;

/// A kind of call that names a document.
struct Kind {
    name: &'static str,
    method: Method,
    /// `{id}` stands for the document in question, `{mine}` for one that the caller may write.
    path: &'static str,
    /// The body, with the same marks; null for none.
    body: Value,
}

fn kinds() -> Vec<Kind> {
    let kind = |name, method, path, body| Kind { name, method, path, body };
    vec![
        kind("read", Method::GET, "/documents/{id}", Value::Null),
        kind("list", Method::GET, "/documents/{id}/subtree", Value::Null),
        kind("links", Method::GET, "/documents/{id}/links", Value::Null),
        kind("evidence", Method::GET, "/documents/{id}/evidence", Value::Null),
        kind("bytes", Method::GET, "/documents/{id}/bytes", Value::Null),
        kind("frontier", Method::GET, "/ingest/file/{id}/frontier", Value::Null),
        kind("view", Method::GET, "/view/{id}", Value::Null),
        kind("search", Method::POST, "/search/bm25", json!({"query": "heron", "parent_id": "{id}"})),
        kind("facts", Method::GET, "/triples?subject_id={id}", Value::Null),
        kind("graph", Method::GET, "/graph/neighbors?document_id={id}", Value::Null),
        kind("create", Method::POST, "/documents", json!({"title": "t", "content": "c", "parent_id": "{id}"})),
        kind("change", Method::PATCH, "/documents/{id}", json!({"title": "t"})),
        kind("move", Method::PATCH, "/documents/{mine}", json!({"parent_id": "{id}"})),
        kind("link", Method::POST, "/documents/{mine}/links", json!({"target_id": "{id}", "link_type": "cites"})),
        kind("delete", Method::DELETE, "/documents/{id}", Value::Null),
    ]
}

/// A value with numbers in the place of the marks.
fn filled(body: &Value, id: i64, mine: i64) -> Value {
    match body {
        Value::String(text) if text == "{id}" => id.into(),
        Value::String(text) if text == "{mine}" => mine.into(),
        Value::Object(members) => members.iter().map(|(name, value)| (name.clone(), filled(value, id, mine))).collect(),
        other => other.clone(),
    }
}

/// A principal that asks.
struct Asking {
    http: Http,
    base: String,
    token: String,
    mine: i64,
}

impl Asking {
    /// The milliseconds until a refusal has come whole.
    async fn time(&self, kind: &Kind, id: i64) -> Result<f64, BoxError> {
        let path = kind.path.replace("{id}", &id.to_string()).replace("{mine}", &self.mine.to_string());
        let request = self.http.request(kind.method.clone(), format!("{}{path}", self.base)).bearer_auth(&self.token);
        let request = match &kind.body {
            Value::Null => request,
            body => request.json(&filled(body, id, self.mine)),
        };
        let begun = Instant::now();
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        let taken = begun.elapsed().as_secs_f64() * 1e3;
        // Lists of facts about nothing are empty.
        match status.as_u16() {
            404 => Ok(taken),
            200 if kind.name == "facts" => Ok(taken),
            _ => Err(format!("{} answers {status}: {text}", kind.name).into()),
        }
    }
}

/// More calls are asked than a principal may make in a minute.
fn unlimited(settings: &mut Settings) {
    (settings.rate_reads, settings.rate_writes, settings.rate_costly) = (0, 0, 0);
}

pub async fn run(rounds: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    with_app(unlimited, async |app: &App| measure(app, rounds, out).await).await
}

async fn measure(app: &App, rounds: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let base = format!("http://{}", app.address);
    let owner = uploads::client(&base)?;
    let hidden = hide(&owner).await?;
    let asking = asking(&owner, base).await?;
    for kind in kinds() {
        let (mut unreadable, mut missing) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        for round in 0..WARMING + rounds {
            let at = round % hidden.len();
            // Which of the two comes first changes, so that nothing of the one is warm for the other.
            let never = NEVER + i64::try_from(at)?;
            let (of_unreadable, of_missing) = match round % 2 {
                0 => (asking.time(&kind, hidden[at]).await?, asking.time(&kind, never).await?),
                _ => {
                    let of_missing = asking.time(&kind, never).await?;
                    (asking.time(&kind, hidden[at]).await?, of_missing)
                }
            };
            if round >= WARMING {
                unreadable.push(of_unreadable);
                missing.push(of_missing);
            }
        }
        for (what, mut times) in [("unreadable", unreadable), ("missing", missing)] {
            out(Figure::alone(&format!("timing/{}/{what}", kind.name), rounds, "ms", median(&mut times)));
        }
    }
    Ok(())
}

/// Documents of the owner's under a folder that is closed to everybody else.
async fn hide(owner: &Client<Remote>) -> Result<Vec<i64>, BoxError> {
    let folder = NewDocument { title: "Closed".to_owned(), content: "A folder.".to_owned(), ..NewDocument::default() };
    let folder = owner.create_document(WaitQuery::default(), Json(folder)).await?.document.id;
    owner.protect_document(DocumentPath { id: folder }).await?;
    let item = |number: usize| BatchItem {
        title: format!("Hidden {number}"),
        content: format!("The heron waits by the water of pond {number}."),
        parent_id: Some(folder),
        ..BatchItem::default()
    };
    let batch = NewBatch { documents: (0..HIDDEN).map(item).collect(), priority: 0 };
    let stored = owner.create_documents(Json(batch)).await?;
    let ids: Vec<i64> = stored.documents.iter().map(|stored| stored.document_id).collect();
    for &id in &ids {
        uploads::settled(owner, id).await?;
    }
    Ok(ids)
}

/// A principal with a document of its own.
async fn asking(owner: &Client<Remote>, base: String) -> Result<Asking, BoxError> {
    let new = NewPrincipal { name: "asks".to_owned(), kind: PrincipalKind::User };
    let id = owner.create_principal(Json(new)).await?.id;
    let token = NewApiToken { name: "bench".to_owned(), expires_at: None };
    let token = owner.issue_api_token(PrincipalPath { id }, Json(token)).await?.secret;
    let http = Http::builder().no_proxy().build()?;
    let client = Client(Remote::new(&base, &token, http.clone()));
    let mine = NewDocument {
        title: "Mine".to_owned(),
        content: "A coot.".to_owned(),
        private: true,
        ..NewDocument::default()
    };
    let mine = client.create_document(WaitQuery::default(), Json(mine)).await?.document.id;
    Ok(Asking { http, base, token, mine })
}
