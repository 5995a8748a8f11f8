//! Whether the time of an answer tells that there is a document which its caller may not read: each kind of call with ids of such documents
//! and with ids that never were, in turn; and the analysis of a file that is stored where its caller may not read it, and of one that is not stored.
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
    Client, FileUpload, Json, Remote,
    wire::{
        BatchItem, DocumentPath, NewApiToken, NewBatch, NewDocument, NewPrincipal, PrincipalKind, PrincipalPath,
        UploadQuery, WaitQuery,
    },
};

/// How many documents nobody but the owner may read, and how many ids that never were are asked for beside them; of files as many.
const HIDDEN: usize = 200;
/// What no sequence of ids comes to in a bench.
const NEVER: i64 = 1 << 40;
/// What no number of a stored file comes to.
const NOT_STORED: usize = 500_000;
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
        kind("story", Method::GET, "/documents/{id}/story", Value::Null),
        kind("cells", Method::GET, "/documents/{id}/cells", Value::Null),
        kind("similar", Method::GET, "/documents/{id}/similar", Value::Null),
        kind("view", Method::GET, "/view/{id}", Value::Null),
        kind("search", Method::POST, "/search/bm25", json!({"query": "heron", "parent_id": "{id}"})),
        kind("export", Method::GET, "/archive/documents?parent_id={id}", Value::Null),
        kind("facts", Method::GET, "/triples?subject_id={id}", Value::Null),
        kind(
            "assert",
            Method::POST,
            "/triples",
            json!({"subject_id": "{mine}", "predicate": "knows", "object_id": "{id}"}),
        ),
        kind("graph", Method::GET, "/graph/neighbors?document_id={id}", Value::Null),
        kind("create", Method::POST, "/documents", json!({"title": "t", "content": "c", "parent_id": "{id}"})),
        kind("change", Method::PATCH, "/documents/{id}", json!({"title": "t"})),
        kind("move", Method::PATCH, "/documents/{mine}", json!({"parent_id": "{id}"})),
        kind("link", Method::POST, "/documents/{mine}/links", json!({"target_id": "{id}", "link_type": "cites"})),
        kind("tokens", Method::POST, "/documents/{id}/tokens", Value::Null),
        kind("reprocess", Method::POST, "/ingest/file/{id}/reprocess", Value::Null),
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
    client: Client<Remote>,
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
        match status.as_u16() {
            404 => Ok(taken),
            _ => Err(format!("{} answers {status}: {text}", kind.name).into()),
        }
    }

    /// The milliseconds until it is known what an upload of a file would do.
    async fn time_analysis(&self, number: usize) -> Result<f64, BoxError> {
        let file = FileUpload::from_bytes("pond.md", text(number), None);
        let begun = Instant::now();
        let analysis = self.client.analyze_file(file).await?;
        let taken = begun.elapsed().as_secs_f64() * 1e3;
        match analysis.already_stored {
            None => Ok(taken),
            Some(stored) => Err(format!("the caller may read file {}", stored.document_id).into()),
        }
    }
}

/// The text of a file, as long as that of any other.
fn text(number: usize) -> String {
    format!("# Pond {number:06}\n\nThe heron waits by the water of pond {number:06}.\n")
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
        let ask = async |is_there: bool, at: usize| -> Result<f64, BoxError> {
            let id = if is_there { hidden[at] } else { NEVER + i64::try_from(at)? };
            asking.time(&kind, id).await
        };
        print(kind.name, rounds, in_turn(rounds, ask).await?, out);
    }
    let ask = async |is_there: bool, at: usize| asking.time_analysis(if is_there { at } else { NOT_STORED + at }).await;
    print("analyze", rounds, in_turn(rounds, ask).await?, out);
    Ok(())
}

/// The times of answers about what is there and may not be read, and about what is not there.
struct Times {
    unreadable: Vec<f64>,
    missing: Vec<f64>,
}

/// Asks about both in each round. `ask` takes whether it is there, and which of them it is.
async fn in_turn(rounds: usize, ask: impl AsyncFn(bool, usize) -> Result<f64, BoxError>) -> Result<Times, BoxError> {
    let (mut unreadable, mut missing) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
    for round in 0..WARMING + rounds {
        let at = round % HIDDEN;
        // Which of the two comes first changes, so that nothing of the one is warm for the other.
        let (of_unreadable, of_missing) = match round % 2 {
            0 => (ask(true, at).await?, ask(false, at).await?),
            _ => {
                let of_missing = ask(false, at).await?;
                (ask(true, at).await?, of_missing)
            }
        };
        if round >= WARMING {
            unreadable.push(of_unreadable);
            missing.push(of_missing);
        }
    }
    Ok(Times { unreadable, missing })
}

fn print(kind: &str, rounds: usize, mut times: Times, out: &mut dyn FnMut(Figure)) {
    let told = told(&times);
    for (what, times) in [("unreadable", &mut times.unreadable), ("missing", &mut times.missing)] {
        out(Figure::alone(&format!("timing/{kind}/{what}"), rounds, "ms", median(times)));
    }
    out(Figure::alone(&format!("timing/{kind}/told"), rounds, "share", told));
}

/// How often the answer about what is there takes longer than one about what is not: half of the time, if the times tell nothing.
fn told(times: &Times) -> f64 {
    let mut missing = times.missing.clone();
    missing.sort_unstable_by(f64::total_cmp);
    let shorter = |time: &f64| {
        let (below, up_to) =
            (missing.partition_point(|other| other < time), missing.partition_point(|other| other <= time));
        f64::midpoint(below as f64, up_to as f64)
    };
    times.unreadable.iter().map(shorter).sum::<f64>() / (times.unreadable.len() * missing.len()) as f64
}

/// Documents of the owner's, and files, under a folder that is closed to everybody else. Returns the documents.
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
    let mut files = Vec::with_capacity(HIDDEN);
    for number in 0..HIDDEN {
        let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
        let file = FileUpload::from_bytes("pond.md", text(number), None);
        files.push(owner.upload_file(query, file).await?.document_id);
    }
    for &id in ids.iter().chain(&files) {
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
    Ok(Asking { http, base, token, client, mine })
}
