//! Documents that are cut into documents under them, and children that are put into segments.
mod files;
mod replaced;
mod sums;

use crate::{
    cli,
    edits::{get, patch, patched},
    principals::{grant, someone},
    support::{TestApp, Wish, document, invariants, sample, until, until_a_statement_like_this_waits},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_client::{
    Code, Failure, FileUpload, Json, Meta, OptionalJson, Validated,
    wire::{
        BatchItem, Bm25Search, ChunkRequest, DocumentPath, DocumentResponse, EmbedOptions, EmbedQuery, GrantRight,
        NewBatch, NewDocument, PageQuery, PiecesQuery, PiecesResponse, SegmentRequest, SegmentResponse, SplitRequest,
        TaskTypePath, UploadQuery, VectorSearch, WaitQuery,
    },
};

const WAIT: PiecesQuery = PiecesQuery { wait: true };

async fn children(app: &TestApp, id: i64) -> Vec<DocumentResponse> {
    let query = PageQuery { limit: Some(1000), ..PageQuery::default() };
    app.client.list_children(DocumentPath { id }, query).await.unwrap().documents
}

async fn ids_under(app: &TestApp, id: i64) -> Vec<i64> {
    children(app, id).await.iter().map(|child| child.id).collect()
}

async fn evidence(app: &TestApp, id: i64) -> serde_json::Map<String, Value> {
    app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence
}

async fn split(app: &TestApp, id: i64, request: SplitRequest) -> Result<PiecesResponse, Failure> {
    app.client.split_document(DocumentPath { id }, WAIT, Json(request)).await
}

async fn chunk(app: &TestApp, id: i64, max_tokens: u32, replace: bool) -> Result<PiecesResponse, Failure> {
    let request = ChunkRequest { max_tokens: Some(max_tokens), replace, ..ChunkRequest::default() };
    app.client.chunk_document(DocumentPath { id }, WAIT, OptionalJson(Some(request))).await
}

async fn segment(app: &TestApp, id: i64, request: SegmentRequest) -> Result<SegmentResponse, Failure> {
    app.client.segment_document(DocumentPath { id }, OptionalJson(Some(request))).await
}

fn at(places: &[u32], replace: bool) -> SplitRequest {
    SplitRequest { at: Some(places.to_vec()), by_headings: false, replace }
}

fn replace() -> SegmentRequest {
    SegmentRequest { replace: true, ..SegmentRequest::default() }
}

async fn events(app: &TestApp, kind: &str, id: i64) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM event_outbox WHERE kind = $1 AND document_id = $2")
        .bind(kind)
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_is_split_where_its_caller_says_or_at_its_headings() {
    let app = TestApp::start().await;
    let text = "Überall Wasser.\n\n# Herons\n\nThey wait by the reeds.\n\n## Food\n\nThey eat zander.\n\n# Coots\n\nThey dive.";
    let id = app.create("Birds", text, None).await.id;
    let by_headings = SplitRequest { by_headings: true, ..SplitRequest::default() };
    let made = split(&app, id, by_headings.clone()).await.unwrap();
    let pieces = children(&app, id).await;
    assert_eq!(pieces.iter().map(|piece| piece.id).collect::<Vec<_>>(), made.created);
    let shown: Vec<_> = pieces.iter().map(|piece| (piece.title.as_str(), piece.content.as_str())).collect();
    let expected = [
        ("Birds", "Überall Wasser."),
        ("Herons", "# Herons\n\nThey wait by the reeds."),
        ("Food", "## Food\n\nThey eat zander."),
        ("Coots", "# Coots\n\nThey dive."),
    ];
    assert_eq!(shown, expected);
    for piece in &pieces {
        let evidence = evidence(&app, piece.id).await;
        let place = |end: usize| evidence["anchor"]["characters"][end].as_u64().unwrap() as usize;
        let cut: String = text.chars().skip(place(0)).take(place(1) - place(0)).collect();
        assert_eq!((evidence["rule"].as_str(), cut.trim()), (Some("split"), piece.content.as_str()));
        assert_eq!(events(&app, "document.created", piece.id).await, 1);
    }
    let found = app.client.search_bm25(Json(Bm25Search::new("zander"))).await.unwrap();
    assert!(found.results.iter().any(|result| result.document.id == pieces[2].id));
    assert_eq!(split(&app, id, by_headings).await.unwrap_err().code, Code::Conflict);
    // What was put under a piece is not deleted with it.
    let under = app.create("A note", "It lies under a piece.", Some(pieces[0].id)).await.id;
    let occupied = split(&app, id, at(&[15], true)).await.unwrap_err();
    assert!(occupied.code == Code::Conflict && occupied.members.contains_key("remedy"), "{occupied}");
    app.client.delete_document(DocumentPath { id: under }).await.unwrap();
    let again = split(&app, id, at(&[8, 15], true)).await.unwrap();
    assert_eq!((again.created.len(), again.deleted), (3, 4));
    for piece in &pieces {
        assert_eq!(events(&app, "document.deleted", piece.id).await, 1);
    }
    let contents: Vec<String> = children(&app, id).await.into_iter().map(|piece| piece.content).collect();
    assert!(
        contents[0] == "Überall" && contents[1] == "Wasser." && contents[2].starts_with("# Herons"),
        "{contents:?}"
    );
    assert_eq!(app.client.search_bm25(Json(Bm25Search::new("zander"))).await.unwrap().total, 2);
    let read = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert_eq!(read.content, text, "the text itself stays");
    // If the text that it was cut from is deleted, a piece has a deletion event of its own.
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    assert_eq!(events(&app, "document.deleted", again.created[0]).await, 1);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_is_chunked_as_ingestion_does_and_its_chunks_are_found() {
    let app = TestApp::start().await;
    let text: String = (0..300).map(|n| format!("Heron number {n} waits by the water of pond {n}. ")).collect();
    let id = app.create("Herons", &text, None).await.id;
    let made = chunk(&app, id, 16, false).await.unwrap();
    assert!(made.created.len() > 128, "more than one task embeds them: {}", made.created.len());
    let chunks = children(&app, id).await;
    assert!(chunks.iter().all(|chunk| chunk.usetype == "chunk" && chunk.settled.as_str() == "settled"));
    let joined: Vec<&str> = chunks.iter().map(|chunk| chunk.content.as_str()).collect();
    assert_eq!(joined.join(" "), text.trim(), "the chunks are the text");
    let query =
        VectorSearch { parent_id: Some(id), ..VectorSearch::new("Heron number 77 waits by the water of pond 77.") };
    let found = app.client.search_vector(Json(query)).await.unwrap();
    assert_eq!(found.total, made.created.len() as u64, "each has a vector");
    assert!(found.results[0].document.content.contains("number 77 "), "{}", found.results[0].document.content);
    assert_eq!(chunk(&app, id, 120, false).await.unwrap_err().code, Code::Conflict);
    let again = chunk(&app, id, 64, true).await.unwrap();
    assert!(again.created.len() < made.created.len() && again.deleted == made.created.len());
    // A chunk is a document of its own: it is changed and moved like any other.
    patched(&app, again.created[0], json!({"content": "A grebe.", "parent_id": null})).await;
    // One that is longer than the model's window is embedded in windows.
    let digits: String = (0..1_500).map(|n| format!("{} ", n % 10)).collect();
    let dense = app.create("Digits", &digits, None).await.id;
    let long = chunk(&app, dense, 8_192, false).await.unwrap();
    let evidence = app.client.read_evidence(DocumentPath { id: long.created[0] }).await.unwrap().evidence;
    assert!(long.warnings.is_empty() && evidence["embed"]["windows"].as_u64() > Some(1), "{long:?} {evidence:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_a_file_are_cut_by_its_ingestion_alone() {
    let app = TestApp::start().await;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let parts = app.subtree(file).await;
    let leaf = parts.iter().find(|node| node.usetype == "chunk").unwrap();
    for id in [file, leaf.id] {
        assert_eq!(chunk(&app, id, 64, false).await.unwrap_err().code, Code::InvalidField);
        assert_eq!(split(&app, id, at(&[1], false)).await.unwrap_err().code, Code::InvalidField);
        assert_eq!(segment(&app, id, replace()).await.unwrap_err().code, Code::InvalidField);
    }
    // What a caller has cut under a file counts in its frontier, and is no part of its text.
    let before = evidence(&app, file).await["effective_content"].clone();
    let text = "The pump runs at night. ".repeat(30);
    let note = app.create("Note", &text, Some(file)).await.id;
    let cut = chunk(&app, note, 32, false).await.unwrap();
    chunk(&app, note, 64, true).await.unwrap();
    segment(&app, note, SegmentRequest { penalty: Some(1e-6), min_segment: Some(1), ..replace() }).await.unwrap();
    patched(&app, leaf.id, json!({"content": "The gauge is read at noon."})).await;
    let frontier = app.settled(file).await;
    assert_eq!(frontier.nodes_total, 1 + app.subtree(file).await.len() as i64);
    assert!(cut.created.len() > 1);
    let after = evidence(&app, file).await["effective_content"].clone();
    assert_eq!(before["source_children"], after["source_children"]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn summaries_do_not_outlive_the_pieces_that_they_quote() {
    let app = TestApp::start().await;
    let top = app.create("Top", "", None).await.id;
    let text: String = (0..8).map(|n| format!("# Part {n}\n\nHeron {n} waits by pond {n} for a fish.\n\n")).collect();
    let id = app.create("Herons", &text, Some(top)).await.id;
    let by_headings = SplitRequest { by_headings: true, replace: true, ..SplitRequest::default() };
    split(&app, id, by_headings.clone()).await.unwrap();
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let mut trees = Vec::new();
    for over in [top, id] {
        let made = app.client.make_raptor(DocumentPath { id: over }, wait, OptionalJson(None)).await.unwrap();
        trees.push(made.tree.expect("a small tree is made within a minute").raptor_id);
    }
    assert!(app.subtree(top).await.iter().filter(|node| trees.contains(&node.id)).count() == 2);
    split(&app, id, by_headings).await.unwrap();
    let left = app.subtree(top).await;
    assert!(left.iter().all(|node| node.usetype != "raptor" && node.usetype != "summary"), "{left:?}");
    app.end().await;
}

const TOPICS: [[&str; 3]; 3] = [
    [
        "The heron waits in the reeds and spears the fish that swims too near.",
        "A heron builds its nest of sticks high in a tree.",
        "Young herons beg for fish until they can fly.",
    ],
    [
        "The radar gauge measures the level of the tank by the time of its echo.",
        "A technician calibrates the level sensor of the tank.",
        "The display of the gauge shows how full the tank is.",
    ],
    [
        "The assembly elects its chair by a vote of two thirds.",
        "A tied vote of the assembly is broken by lot.",
        "Members of the assembly vote in secret.",
    ],
];

/// A document with 24 notes under it, about three things one after the other; the fifth note has no vector.
async fn notes(app: &TestApp) -> (i64, Vec<i64>) {
    let top = app.create("Notes", "", None).await.id;
    let note = |n: usize| {
        let text = TOPICS[n / 8][n % 3];
        let content = if n == 4 { format!("{text} ").repeat(200) } else { format!("{text} Note {n}.") };
        BatchItem { title: format!("Note {n}"), content, parent_id: Some(top), ..BatchItem::default() }
    };
    let batch = NewBatch { documents: (0..24).map(note).collect(), priority: 0 };
    let made = app.client.create_documents(Json(batch)).await.unwrap();
    drained(app).await;
    (top, made.documents.iter().map(|document| document.document_id).collect())
}

async fn drained(app: &TestApp) {
    until("the tasks to end", async || {
        let open: i64 =
            sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE NOT final").fetch_one(&app.pool).await.unwrap();
        (open == 0).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_are_put_into_segments_where_the_subject_changes() {
    let app = TestApp::start().await;
    let (top, notes) = notes(&app).await;
    let made = app.client.segment_document(DocumentPath { id: top }, OptionalJson(None)).await.unwrap();
    assert_eq!((made.children, made.deleted, made.segments.len()), (24, 0, 3), "{made:?}");
    assert_eq!(ids_under(&app, top).await, made.segments.iter().map(|segment| segment.id).collect::<Vec<_>>());
    for (n, segment) in made.segments.iter().enumerate() {
        let query = EmbedQuery { include_embed: true };
        let read = app.client.read_document(DocumentPath { id: segment.id }, query).await.unwrap().value().unwrap();
        assert_eq!((read.usetype.as_str(), read.settled.as_str(), read.parent_id), ("section", "settled", Some(top)));
        assert_eq!(read.title, format!("Segment {}", n + 1));
        let length: f32 = read.embed.unwrap().iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-3, "{length}");
        assert_eq!(ids_under(&app, segment.id).await, notes[n * 8..][..8]);
        assert_eq!(segment.children, 8);
    }
    let query = VectorSearch { parent_id: Some(made.segments[1].id), ..VectorSearch::new("a heron in its nest") };
    let found = app.client.search_vector(Json(query)).await.unwrap();
    assert!(
        found
            .results
            .iter()
            .all(|result| result.document.content.contains("tank") || result.document.content.is_empty())
    );
    let moved = events(&app, "document.moved", notes[0]).await;
    assert_eq!((moved, events(&app, "document.created", made.segments[0].id).await), (1, 1));
    assert_eq!(evidence(&app, top).await["structure.semantic"], json!({"children": 24, "segments": [3]}));
    let again = segment(&app, top, SegmentRequest::default()).await.unwrap_err();
    assert!(again.code == Code::Conflict && again.members.contains_key("remedy"), "{again}");
    // What is under the children need not be embedded, and one of them has no vector for good.
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    let new = NewDocument { parent_id: Some(notes[1]), ..document("Below", "It waits to be embedded.") };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
    // With a high penalty nothing parts them, and the earlier segments are taken away.
    let one = segment(&app, top, SegmentRequest { penalty: Some(1e6), ..replace() }).await.unwrap();
    assert!(one.segments.is_empty() && (one.deleted, one.children) == (3, 24), "{one:?}");
    assert_eq!(ids_under(&app, top).await, notes);
    assert_eq!(evidence(&app, top).await["structure.semantic"], Value::Null);
    app.end().await;
}

/// What `replace` deletes is found in the segments that hold it by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_are_replaced_wherever_their_segments_have_put_them() {
    let app = TestApp::start().await;
    let lines: Vec<String> = (0..24).map(|n| format!("{} Note {n}.", TOPICS[n / 8][n % 3])).collect();
    let text = lines.join("\n");
    let starts: Vec<u32> = (1..24).map(|n| lines[..n].iter().map(|line| line.len() as u32 + 1).sum()).collect();
    let id = app.create("Notes", &text, None).await.id;
    split(&app, id, at(&starts, false)).await.unwrap();
    drained(&app).await;
    let made = segment(&app, id, SegmentRequest::default()).await.unwrap();
    assert_eq!(made.segments.len(), 3, "{made:?}");
    // One of the segments holds something else too, and a caller gave another one a text.
    let added = app.create("Added", "A word on herons.", Some(made.segments[1].id)).await.id;
    let (told, text_of_segment) = (made.segments[2].id, "How the assembly votes, in short.");
    patched(&app, told, json!({"content": text_of_segment})).await;
    drained(&app).await;
    assert_eq!(split(&app, id, at(&starts[..1], false)).await.unwrap_err().code, Code::Conflict);
    // It waits for a segment before it has a piece, as a delete of that segment does. What was refused may hold one for a moment more.
    let (held, mut other) = (made.segments[0].id, app.pool.begin().await.unwrap());
    sqlx::query("SELECT FROM documents WHERE id = $1 FOR UPDATE").bind(held).execute(&mut *other).await.unwrap();
    let (again, ()) = tokio::join!(split(&app, id, at(&starts[..1], true)), async {
        until_a_statement_like_this_waits(&app.pool, "%cardinality(path)%").await;
        let free = "SELECT FROM documents WHERE id = $1 FOR UPDATE NOWAIT";
        sqlx::query(free).bind(ids_under(&app, held).await[0]).execute(&mut *other).await.unwrap();
        other.rollback().await.unwrap();
    });
    let again = again.unwrap();
    assert_eq!((again.created.len(), again.deleted), (2, 24));
    let left: BTreeSet<i64> = app.subtree(id).await.iter().map(|node| node.id).collect();
    let expected: BTreeSet<i64> = [made.segments[1].id, added, told].into_iter().chain(again.created).collect();
    assert_eq!((left, get(&app, told).await.content.as_str()), (expected, text_of_segment));
    // A piece of another document that was moved here is nobody's earlier piece.
    let other = app.create("Elsewhere", &text, None).await.id;
    let piece = split(&app, other, at(&starts[..1], false)).await.unwrap().created[0];
    drained(&app).await;
    patch(&app, piece, json!({"parent_id": id})).await.unwrap();
    drained(&app).await;
    assert_eq!(split(&app, id, at(&starts[1..2], true)).await.unwrap().deleted, 2);
    assert!(ids_under(&app, id).await.contains(&piece));
    split(&app, piece, at(&[5], false)).await.unwrap();
    drained(&app).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_are_replaced_with_what_is_in_them_and_rights_of_their_own_are_kept() {
    let app = TestApp::start().await;
    let (top, notes) = notes(&app).await;
    let levels = SegmentRequest { max_children: Some(2), min_segment: Some(1), penalty: Some(0.3), ..replace() };
    let first = segment(&app, top, levels).await.unwrap();
    // The lowest level comes last.
    let holder = first.segments.last().unwrap().id;
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let tree = app.client.make_raptor(DocumentPath { id: top }, wait, OptionalJson(None)).await.unwrap();
    let tree = tree.tree.expect("a small tree is made within a minute").raptor_id;
    let added = app.create("Added", "A heron stands still for an hour.", Some(holder)).await.id;
    app.client.protect_document(DocumentPath { id: notes[10] }).await.unwrap();
    drained(&app).await;
    let second = segment(&app, top, replace()).await.unwrap();
    assert_eq!((second.deleted, second.children), (first.segments.len(), 24), "one is closed, and one was added");
    let all = app.subtree(top).await;
    let of = |id: i64| all.iter().find(|node| node.id == id).unwrap();
    assert_eq!(of(notes[10]).parent_id, Some(top), "whoever may not read it learns nothing of it by a segment");
    assert!(second.segments.iter().any(|made| Some(made.id) == of(added).parent_id));
    assert!(all.iter().all(|node| first.segments.iter().all(|made| made.id != node.id)));
    assert!(!all.iter().any(|node| node.id == tree), "it told of what is closed now");
    app.client.protect_document(DocumentPath { id: second.segments[0].id }).await.unwrap();
    let refused = segment(&app, top, replace()).await.unwrap_err();
    assert!(refused.code == Code::Conflict && refused.detail.contains("rights of its own"), "{refused}");
    app.end().await;
}

/// Asserts that the vector of each segment is the weighted sum of what is directly under it, and that a segment of nothing has none.
async fn assert_sums(app: &TestApp, segments: &[i64]) {
    let vectors: Vec<(i64, i64, String, f32)> = sqlx::query_as(
        "SELECT d.id, d.parent_id, v.embed::text, v.weight FROM documents d JOIN document_vectors v ON v.document_id = d.id
           JOIN documents p ON p.id = d.parent_id WHERE d.id = ANY($1) OR d.parent_id = ANY($1) AND d.guard = p.guard",
    )
    .bind(segments)
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let read = |text: &str| -> Vec<f32> { serde_json::from_str(text).unwrap() };
    for segment in segments {
        let mut sum = Vec::new();
        for (_, _, vector, weight) in vectors.iter().filter(|(_, parent, ..)| parent == segment) {
            let vector = read(vector);
            sum.resize(vector.len(), 0.0);
            sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x * weight);
        }
        let length = sum.iter().map(|x| x * x).sum::<f32>().sqrt();
        let own = vectors.iter().find(|(id, ..)| id == segment);
        assert_eq!(own.is_some(), length > 0.0, "segment {segment}");
        if let Some((.., vector, _)) = own {
            let cosine: f32 = read(vector).iter().zip(&sum).map(|(x, sum)| x * sum / length).sum();
            assert!(cosine > 0.999, "segment {segment}: {cosine}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vector_of_a_segment_follows_what_is_in_it() {
    let app = TestApp::start().await;
    let (top, notes) = notes(&app).await;
    let levels = SegmentRequest { max_children: Some(2), min_segment: Some(1), penalty: Some(0.3), ..replace() };
    let made = segment(&app, top, levels).await.unwrap().segments;
    let segments: Vec<i64> = made.iter().map(|segment| segment.id).collect();
    assert_eq!(segments.len(), 3, "{made:?}");
    assert_sums(&app, &segments).await;
    // From here on, one of them holds another one.
    patched(&app, segments[1], json!({"parent_id": segments[0]})).await;
    drained(&app).await;
    assert_sums(&app, &segments).await;
    let parent = async |id: i64| get(&app, id).await.parent_id.unwrap();
    let changes: [(&str, Value); 3] = [
        ("another text", json!({"content": "A frog sits in the reeds and waits for flies."})),
        ("another place", json!({"parent_id": null})),
        ("another segment", json!({"parent_id": parent(notes[23]).await})),
    ];
    for (n, (change, body)) in changes.into_iter().enumerate() {
        patched(&app, notes[9 + n], body).await;
        drained(&app).await;
        assert_sums(&app, &segments).await;
        let holder = parent(notes[12]).await;
        app.create(change, "The votes of the assembly are counted twice.", Some(holder)).await;
        drained(&app).await;
        assert_sums(&app, &segments).await;
    }
    app.client.protect_document(DocumentPath { id: notes[16] }).await.unwrap();
    drained(&app).await;
    assert_sums(&app, &segments).await;
    app.client.unprotect_document(DocumentPath { id: notes[16] }).await.unwrap();
    drained(&app).await;
    assert_sums(&app, &segments).await;

    let emptied = parent(notes[23]).await;
    for id in ids_under(&app, emptied).await {
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    drained(&app).await;
    assert_sums(&app, &segments).await;
    let query = VectorSearch { parent_id: Some(top), limit: 100, ..VectorSearch::new("a vote of the assembly") };
    let found = app.client.search_vector(Json(query)).await.unwrap();
    assert!(found.results.iter().all(|result| result.document.id != emptied), "nothing is in it: {found:?}");
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_caller_did_not_read_is_neither_cut_nor_segmented() {
    let app = TestApp::start().await;
    let (top, _) = notes(&app).await;
    let id = app.create("Notes", "One line.\nAnother line.", None).await.id;
    let (file, _) = app.ingest(&sample("handbook.md")).await;
    let stale = app.client.given(Meta { if_match: Some("\"stale\"".to_owned()), ..Meta::default() });
    let refused = [
        stale.split_document(DocumentPath { id }, WAIT, Json(at(&[4], false))).await.unwrap_err(),
        stale.chunk_document(DocumentPath { id }, WAIT, OptionalJson(None)).await.unwrap_err(),
        stale.segment_document(DocumentPath { id: top }, OptionalJson(None)).await.unwrap_err(),
        stale.reprocess_file(DocumentPath { id: file }, OptionalJson(None)).await.unwrap_err(),
    ];
    assert!(refused.iter().all(|failure| failure.code == Code::PreconditionFailed), "{refused:?}");
    assert!(ids_under(&app, id).await.is_empty());
    let query = EmbedQuery::default();
    let Validated::Modified { etag, .. } = app.client.read_document(DocumentPath { id }, query).await.unwrap() else {
        panic!("the caller knows no version yet")
    };
    let current = app.client.given(Meta { if_match: Some(etag), ..Meta::default() });
    current.split_document(DocumentPath { id }, WAIT, Json(at(&[4], false))).await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_of_files_is_segmented_with_all_that_is_in_them() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
    let mut files = Vec::new();
    app.client.pause_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    for n in 0..6 {
        let text = format!("# File {n}\n\n{} It is the text of file {n}.\n", TOPICS[n / 3].join(" "));
        let file = FileUpload::from_bytes(&format!("{n}.md"), text, None);
        files.push(app.client.upload_file(query, file).await.unwrap().document_id);
    }
    // A file that is still being ingested has no vector yet.
    let early = segment(&app, folder, SegmentRequest::default()).await;
    assert!(early.is_err_and(|failure| failure.code == Code::Conflict));
    app.client.resume_task_type(TaskTypePath { task_type: "embed".into() }).await.unwrap();
    for id in &files {
        app.settled(*id).await;
    }
    let made = segment(&app, folder, SegmentRequest { penalty: Some(0.3), ..SegmentRequest::default() }).await.unwrap();
    assert_eq!(made.segments.len(), 2, "{made:?}");
    assert_eq!(ids_under(&app, made.segments[1].id).await, files[3..]);
    for id in &files {
        let frontier = app.settled(*id).await;
        assert_eq!(frontier.nodes_total, 1 + app.subtree(*id).await.len() as i64);
    }
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    let tree =
        app.client.make_raptor(DocumentPath { id: made.segments[0].id }, wait, OptionalJson(None)).await.unwrap();
    let tree = tree.tree.expect("a small tree is made within a minute").raptor_id;
    segment(&app, folder, SegmentRequest { penalty: Some(1e6), ..replace() }).await.unwrap();
    assert_eq!(ids_under(&app, folder).await, files);
    assert!(!app.subtree(folder).await.iter().any(|node| node.id == tree), "its segment is gone");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_cannot_be_cut_or_segmented_is_refused_and_stays() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let add = async |title: &str, content: &str, parent_id| {
        let new = NewDocument { parent_id, ..document(title, content) };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let id = add("t", "One two.", None).await;
    let long = add("long", &"# a\n\n".repeat(20_001), None).await;
    let many = add("many", &"a ".repeat(200_000), None).await;
    let empty = add("empty", " \n", None).await;
    let places: Vec<u32> = (1..=10_001).collect();
    for (id, operation, request, status, field) in [
        (id, "split", json!({"at": [0]}), 422, "at"),
        (id, "split", json!({"at": [8]}), 422, "at"),
        (id, "split", json!({"at": [4_294_967_295_u32]}), 422, "at"),
        (id, "split", json!({"at": [5, 5]}), 422, "at"),
        (id, "split", json!({"at": [5, 4]}), 422, "at"),
        (id, "split", json!({"at": []}), 422, "at"),
        (id, "split", json!({"at": places}), 422, "at"),
        (id, "split", json!({}), 422, "at"),
        (id, "split", json!({"at": [1], "by_headings": true}), 422, "at"),
        (id, "chunk", json!({"max_tokens": 7}), 422, "max_tokens"),
        (id, "chunk", json!({"chunk_strategy": "by_moon"}), 422, "chunk_strategy"),
        (id, "segment", json!({"penalty": 0.0}), 422, "penalty"),
        (id, "segment", json!({"min_segment": 0}), 422, "min_segment"),
        (id, "segment", json!({}), 422, "id"),
        (empty, "split", json!({"at": [1]}), 422, "id"),
        (empty, "chunk", json!({}), 422, "id"),
        (long, "split", json!({"by_headings": true}), 413, ""),
        (many, "chunk", json!({"max_tokens": 8}), 413, ""),
    ] {
        let answer = app.raw("POST", &format!("/documents/{id}/{operation}")).json(&request).send().await.unwrap();
        let (got, problem) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        assert_eq!((got, problem["field"].as_str().unwrap_or("")), (status, field), "{operation} {request}: {problem}");
    }
    for id in [id, long, many, empty] {
        assert_eq!(app.subtree(id).await.len(), 0, "{id}");
    }
    app.end().await;
}

#[tokio::test]
async fn who_may_only_read_cuts_nothing_and_nobody_cuts_what_a_task_holds() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let add = async |content: &str, parent_id| {
        let new = NewDocument { parent_id, ..document("t", content) };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
    };
    let id = add("One two three. Four five six.", None).await;
    let now = PiecesQuery { wait: false };
    let path = DocumentPath { id };
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, id, GrantRight::Read).await;
    let codes = [
        reader.client.split_document(path, now, Json(at(&[14], false))).await.unwrap_err().code,
        reader.client.chunk_document(path, now, OptionalJson(None)).await.unwrap_err().code,
        reader.client.segment_document(path, OptionalJson(None)).await.unwrap_err().code,
    ];
    assert_eq!(codes, [Code::Forbidden; 3]);
    let pieces = app.client.split_document(path, now, Json(at(&[14], false))).await.unwrap().created;
    let waiting = segment(&app, id, SegmentRequest::default()).await.unwrap_err();
    assert_eq!((waiting.code, waiting.members.contains_key("retry_after")), (Code::Conflict, true), "{waiting}");
    for id in &pieces {
        app.client.embed_document(DocumentPath { id: *id }, EmbedOptions::default(), OptionalJson(None)).await.unwrap();
    }
    let claimer =
        svc::store::tasks::Claimer { worker_id: "w".into(), badges: None, strict: false, lease: crate::queue::LEASE };
    let grants = svc::store::tasks::claim(&app.pool, &claimer, &[(svc_actors::Lane::Model, 9)]).await.unwrap().grants;
    let holders: Vec<i64> = grants.iter().map(|grant| grant.task_id.0).collect();
    assert!(grants.iter().any(|grant| pieces.contains(&grant.document_id.0)));
    let held = [
        app.client.split_document(path, now, Json(at(&[14], true))).await.unwrap_err(),
        segment(&app, id, SegmentRequest { min_segment: Some(1), penalty: Some(1e-6), ..replace() }).await.unwrap_err(),
    ];
    for failure in held {
        assert_eq!(failure.code, Code::Conflict, "{failure}");
        assert!(holders.contains(&failure.members["task_id"].as_i64().unwrap()), "{failure}");
    }
    for grant in &grants {
        svc::store::leases::give_back(&app.pool, &[grant.token]).await.unwrap();
    }
    patch(&app, id, json!({"content": "One. Two."})).await.unwrap();
    let made = app.client.split_document(path, now, Json(at(&[4], true))).await.unwrap();
    assert_eq!((made.created.len(), made.deleted), (2, 2));
    // A piece that went elsewhere keeps its task when the others go, though one task was to embed them all.
    patch(&app, made.created[1], json!({"parent_id": null})).await.unwrap();
    app.client.split_document(path, now, Json(at(&[4], true))).await.unwrap();
    let scopes = "SELECT count(*) FROM task_queue WHERE scope_document_id = $1 AND NOT final";
    let left: i64 = sqlx::query_scalar(scopes).bind(made.created[1]).fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, 1);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_command_line_cuts_and_segments() {
    let app = TestApp::start().await;
    let (top, notes) = notes(&app).await;
    let (top, note) = (top.to_string(), notes[0].to_string());
    let split = cli::lines(&cli::svc(&app, &["split", &note, "--at", "10,20", "--wait"]).await);
    assert_eq!(split[0]["created"].as_array().unwrap().len(), 3, "{split:?}");
    let shown = cli::svc(&app, &["--table", "chunk", &note, "--max-tokens", "64", "--wait"]).await;
    assert_eq!(String::from_utf8_lossy(&shown.stdout), format!("cut document {note} into 1 chunks\n"));
    let shown = cli::svc(&app, &["--table", "segment", &top]).await;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("24 children in 3 segments") && shown.contains("Segment 3 (8)"), "{shown}");
    let refused = cli::svc(&app, &["segment", &top]).await;
    assert!(!refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("replace"), "{refused:?}");
    app.end().await;
}
