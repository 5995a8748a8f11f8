//! Archives that were cut, changed or made to do harm.
use super::said;
use crate::{
    cli::svc,
    edits::patch,
    principals::{idle, someone},
    support::{TestApp, invariants},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{fs, os::unix::fs::symlink, path::Path};
use svc::store::documents::content_hash;
use svc_client::{
    Code, FileUpload, Json,
    wire::{ArchivePart, DocumentPath, ImportedArchive, NewBatch, UploadQuery},
};

/// Changes a file of an archive, and its hash in the manifest, as somebody who means harm does.
pub fn change(archive: &Path, name: &str, change: impl Fn(String) -> String) {
    let path = archive.join(name);
    let text = change(fs::read_to_string(&path).unwrap());
    fs::write(&path, &text).unwrap();
    let manifest = archive.join("manifest.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    for file in value["files"].as_array_mut().unwrap() {
        if file["name"] == name {
            file["bytes"] = text.len().into();
            file["sha256"] = hex::encode(Sha256::digest(&text)).into();
        }
    }
    fs::write(&manifest, value.to_string()).unwrap();
}

/// Changes a row of the documents.
fn row(archive: &Path, line: usize, change_row: impl Fn(&mut Value)) {
    change(archive, "documents.ndjson", |text| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut value: Value = serde_json::from_str(&lines[line - 1]).unwrap();
        change_row(&mut value);
        lines[line - 1] = value.to_string();
        lines.join("\n") + "\n"
    });
}

async fn exported(app: &TestApp, archive: &Path) {
    let documents = json!([{"title": "a", "content": "", "key": "a"}, {"title": "b", "content": "", "key": "b", "parent_key": "a"},
        {"title": "c", "content": "", "parent_key": "b"}, {"title": "d", "content": "", "parent_key": "a"}]);
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    app.client.create_documents(Json(batch)).await.unwrap();
    let upload = FileUpload::from_bytes("x.txt", "Bytes.", None);
    app.client.upload_file(UploadQuery::default(), upload).await.unwrap();
    let link = json!({"target_id": 2, "link_type": "cites"});
    app.client.create_link(DocumentPath { id: 1 }, Json(serde_json::from_value(link).unwrap())).await.unwrap();
    let output = svc(app, &["export", archive.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
}

/// A line of token vectors without any width.
fn tokens(document: i64, places: &[i32]) -> String {
    let hash = format!("sha256:{}", "0".repeat(64));
    let (ids, tiers) = (vec![7; places.len()], vec![10; places.len()]);
    let line = json!({"document": document, "text_hash": hash, "model": "m", "places": places, "token_ids": ids, "tiers": tiers, "widths": []});
    format!("{line}\n")
}

fn copied(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to.join("blobs")).unwrap();
    for folder in ["", "blobs"] {
        for entry in fs::read_dir(from.join(folder)).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), to.join(folder).join(entry.file_name())).unwrap();
        }
    }
}

/// What is wrong, how it came to be, and what is said of it.
type Case<'a> = (&'a str, &'a dyn Fn(), &'a [&'a str]);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_faulty_archive_is_refused_by_file_and_line_and_nothing_of_it_is_stored() {
    let (app, other) = (idle().await, idle().await);
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good"), folder.path().join("bad"));
    exported(&app, &good).await;
    let blob = fs::read_dir(good.join("blobs")).unwrap().next().unwrap().unwrap().file_name();
    let manifest = |change: &dyn Fn(&mut Value)| {
        let path = bad.join("manifest.json");
        let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        change(&mut value);
        fs::write(&path, value.to_string()).unwrap();
    };
    let cases: &[Case<'_>] = &[
        ("no manifest", &|| fs::remove_file(bad.join("manifest.json")).unwrap(), &["manifest.json", "not finished"]),
        ("another form", &|| manifest(&|value| value["format"] = 9.into()), &["manifest.json", "the form 9"]),
        ("another field", &|| manifest(&|value| value["more"] = 1.into()), &["manifest.json", "more"]),
        (
            "other counts",
            &|| manifest(&|value| value["counts"]["documents"] = 7.into()),
            &["manifest.json", "counts other rows"],
        ),
        (
            "a path that leaves the folder",
            &|| manifest(&|value| value["files"][0]["name"] = "../../etc/passwd".into()),
            &["manifest.json", "../../etc/passwd", "no archive has"],
        ),
        (
            "a link that leaves the folder",
            &|| {
                fs::remove_file(bad.join("links.ndjson")).unwrap();
                symlink("/etc/passwd", bad.join("links.ndjson")).unwrap();
            },
            &["links.ndjson", "no plain file"],
        ),
        (
            "other bytes",
            &|| {
                let text = fs::read_to_string(bad.join("documents.ndjson")).unwrap();
                fs::write(bad.join("documents.ndjson"), text.replacen("\"a\"", "\"x\"", 1)).unwrap();
            },
            &["documents.ndjson", "not the hash"],
        ),
        (
            "a file that is cut",
            &|| {
                let text = fs::read_to_string(bad.join("documents.ndjson")).unwrap();
                fs::write(bad.join("documents.ndjson"), &text[..text.len() - 9]).unwrap();
            },
            &["documents.ndjson", "the manifest says"],
        ),
        (
            "a line that is cut",
            &|| change(&bad, "documents.ndjson", |text| text.trim_end().to_owned()),
            &["documents.ndjson, line 5", "cut off"],
        ),
        (
            "no JSON",
            &|| change(&bad, "documents.ndjson", |text| text.replacen('{', "[", 1)),
            &["documents.ndjson, line 1"],
        ),
        (
            "a huge line",
            &|| change(&bad, "documents.ndjson", |text| format!("{text}{}\n", "x".repeat(65 << 20))),
            &["documents.ndjson, line 6", "longer than 64 MiB"],
        ),
        ("an unknown field", &|| row(&bad, 2, |row| row["other"] = 1.into()), &["documents.ndjson, line 2", "other"]),
        (
            "a circle",
            &|| row(&bad, 1, |row| row["parent"] = 3.into()),
            &["documents.ndjson, line 1", "parent 3", "before"],
        ),
        ("its own parent", &|| row(&bad, 2, |row| row["parent"] = 2.into()), &["documents.ndjson, line 2", "itself"]),
        (
            "a parent elsewhere",
            &|| row(&bad, 4, |row| row["parent"] = 77.into()),
            &["documents.ndjson, line 4", "parent 77"],
        ),
        (
            "an order that is none of a tree",
            &|| row(&bad, 5, |row| row["parent"] = 3.into()),
            &["documents.ndjson, line 5", "parent 3", "not above"],
        ),
        (
            "a tree that is too deep",
            &|| {
                change(&bad, "documents.ndjson", |text| {
                    let lines: Vec<&str> = text.lines().collect();
                    let mut last: Value = serde_json::from_str(lines[2]).unwrap();
                    let mut deep = lines[..3].join("\n") + "\n";
                    for id in 1_000..1_300 {
                        last["parent"] = last["id"].take();
                        last["id"] = id.into();
                        deep += &format!("{last}\n");
                    }
                    deep
                })
            },
            // The third line lies under two documents.
            &["documents.ndjson, line 257", "lies under 256 documents"],
        ),
        ("an id twice", &|| row(&bad, 4, |row| row["id"] = 2.into()), &["documents.ndjson, line 4", "id 2", "earlier"]),
        ("no id", &|| row(&bad, 4, |row| row["id"] = (-4).into()), &["documents.ndjson, line 4", "id"]),
        (
            "a hash that is a path",
            &|| row(&bad, 5, |row| row["file"]["content_hash"] = "sha256:../../../etc/passwd".into()),
            &["documents.ndjson, line 5", "sha256:<hex>"],
        ),
        (
            "bytes that are missing",
            &|| fs::remove_file(bad.join("blobs").join(&blob)).unwrap(),
            &["documents.ndjson, line 5"],
        ),
        (
            "other bytes of a file",
            &|| fs::write(bad.join("blobs").join(&blob), "Bytes!").unwrap(),
            &["documents.ndjson, line 5", "changed or damaged"],
        ),
        (
            "bytes that are elsewhere",
            &|| {
                fs::remove_file(bad.join("blobs").join(&blob)).unwrap();
                symlink("/etc/passwd", bad.join("blobs").join(&blob)).unwrap();
            },
            &["documents.ndjson, line 5", "no plain file"],
        ),
        (
            "a link to nothing",
            &|| change(&bad, "links.ndjson", |text| text.replace("\"target\":2", "\"target\":99")),
            &["links.ndjson, line 1", "99"],
        ),
        (
            "an anchor that is a book",
            &|| row(&bad, 2, |row| row["anchor"] = json!({"boxes": "x".repeat(70_000)})),
            &["documents.ndjson, line 2", "anchor", "65536"],
        ),
        (
            "token vectors of nothing",
            &|| change(&bad, "tokens.ndjson", |text| text + &tokens(99, &[])),
            &["tokens.ndjson, line 1", "document 99"],
        ),
        (
            "token vectors twice",
            &|| change(&bad, "tokens.ndjson", |text| text + &tokens(1, &[]) + &tokens(1, &[])),
            &["tokens.ndjson, line 2", "id 1", "earlier"],
        ),
        (
            "tokens that go backwards",
            &|| change(&bad, "tokens.ndjson", |text| text + &tokens(1, &[3, 1])),
            &["tokens.ndjson, line 1", "places"],
        ),
        (
            "an index of nothing",
            &|| {
                let index = json!({"name": "i", "k1": 1.2, "b": 0.75, "analyzer": {"language": "german"}, "title_weight": 1, "title_paths": true,
                    "capabilities": {"bm25": true}, "members": [1, 99]});
                change(&bad, "indexes.ndjson", |text| format!("{text}{index}\n"));
            },
            &["indexes.ndjson, line 1", "document 99"],
        ),
        (
            "a context of nothing",
            &|| {
                let context = json!({"name": "c", "config": {"filter": {"any": [{"under": [1]}, {"under": [99]}]}}});
                change(&bad, "contexts.ndjson", |text| format!("{text}{context}\n"));
            },
            &["contexts.ndjson, line 1", "document 99"],
        ),
        ("facts that are none", &|| change(&bad, "facts.ttl", |text| text + "\n<a> <b> ."), &["facts.ttl, line"]),
        (
            "a vector that is none",
            &|| {
                row(&bad, 3, |row| row["vector"] = json!({"model": "m", "weight": -1.0, "halves": ""}));
            },
            &["documents.ndjson, line 3", "vector.weight"],
        ),
    ];
    for (what, spoil, says) in cases {
        copied(&good, &bad);
        spoil();
        let output = svc(&other, &["import", bad.to_str().unwrap()]).await;
        let said = said(&output);
        assert!(output.status.code() == Some(1) && said.lines().count() == 1 && said.len() < 2_000, "{what}: {said}");
        assert!(says.iter().all(|part| said.contains(part)), "{what}: {said}");
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&other.pool).await.unwrap();
        assert_eq!(stored, 0, "{what}");
    }
    copied(&good, &bad);
    assert!(svc(&other, &["import", bad.to_str().unwrap()]).await.status.success());
    app.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_cannot_hold_is_named_by_its_line() {
    let (app, other) = (idle().await, idle().await);
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    exported(&app, &archive).await;
    // The database refuses one document, and says neither which nor by which field.
    for statement in [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of range' USING ERRCODE = '22003'; END $$",
        "CREATE TRIGGER refuse BEFORE INSERT ON documents FOR EACH ROW WHEN (NEW.title = 'd') EXECUTE FUNCTION refuse()",
    ] {
        sqlx::query(statement).execute(&other.pool).await.unwrap();
    }
    let output = svc(&other, &["import", archive.to_str().unwrap()]).await;
    let refusal = said(&output);
    assert_eq!(output.status.code(), Some(1), "{refusal}");
    for part in ["documents.ndjson, line 4: ", "a number is outside of what can be stored", "nearer to 0"] {
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    sqlx::query("DROP TRIGGER refuse ON documents").execute(&other.pool).await.unwrap();
    // What was stored before it is not stored twice.
    assert!(svc(&other, &["import", archive.to_str().unwrap()]).await.status.success());
    let titles: Vec<String> =
        sqlx::query_scalar("SELECT title FROM documents ORDER BY title").fetch_all(&other.pool).await.unwrap();
    assert_eq!(titles, ["a", "b", "c", "d", "x.txt"]);
    app.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_no_client_of_ours_makes_gets_no_further_than_others() {
    let app = idle().await;
    let mallory = someone(&app, "mallory").await;
    let of = ImportedArchive { archive: "a-hostile-archive".to_owned(), parent_id: None };
    let model = app.service.model().await.unwrap().identity().to_owned();
    let document = json!({"id": 1, "title": "t", "content": "c", "usetype": "markdown", "created_at": "2024-01-01T00:00:00Z",
        "updated_at": "2024-01-01T00:00:00Z", "content_hash": "sha256:", "settled": "settled"});
    let part =
        |documents: Vec<Value>| -> ArchivePart { serde_json::from_value(json!({"documents": documents})).unwrap() };
    let with = |name: &str, value: Value| {
        let mut document = document.clone();
        document[name] = value;
        document
    };
    for (documents, says) in [
        (vec![with("vector", json!({"model": model, "weight": 1.0, "halves": "AAAA"}))], "bytes"),
        (vec![with("vector", json!({"model": model, "weight": 1.0, "halves": "!"}))], "base64"),
        (vec![document.clone(), with("parent", 2.into())], "too"),
        (vec![with("parent", 2.into())], "before its parent"),
        (vec![with("created_at", "+262000-01-01T00:00:00Z".into())], "documents[0].created_at"),
        (vec![document.clone(), with("event_time", "-010000-01-01T00:00:00Z".into())], "documents[1].event_time"),
    ] {
        let refused = app.client.import_documents(of.clone(), Json(part(documents))).await.unwrap_err();
        assert!(refused.code == Code::InvalidField && refused.detail.contains(says), "{}", refused.detail);
    }
    // It can neither pass for a tree of summaries, nor take the place of what the store names itself.
    let entities = vec![with("iri", "urn:svc:entities".into()), {
        let mut summary = with("rule", "raptor".into());
        summary["id"] = 2.into();
        summary
    }];
    let made = mallory.client.import_documents(of.clone(), Json(part(entities))).await.unwrap();
    let named: i64 =
        sqlx::query_scalar("SELECT (SELECT count(*) FROM graph_nodes) + (SELECT count(*) FROM node_origins)")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!((made.documents.len(), named), (2, 0));
    // What another caller imported under the same name is another thing.
    let own = app.client.import_documents(of.clone(), Json(part(vec![document.clone()]))).await.unwrap();
    assert!(!own.documents[0].was_existing && own.documents[0].document_id != made.documents[0].document_id);
    // Bytes are those that the document was imported for.
    let upload = FileUpload::from_bytes("x", "other bytes", None);
    let id = own.documents[0].document_id;
    let refused = app.client.import_bytes(DocumentPath { id }, Default::default(), upload).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidField);
    let upload = FileUpload::from_bytes("x", "other bytes", None);
    let refused = mallory.client.import_bytes(DocumentPath { id }, Default::default(), upload).await.unwrap_err();
    assert_eq!(refused.code, Code::Forbidden);
    // What has bytes gets no text besides, with which it could leave the store no more.
    let mut file = with("content", "".into());
    (file["id"], file["content_hash"]) = (3.into(), content_hash("").into());
    file["file"] = json!({"byte_size": 0, "content_hash": content_hash(""), "options": {}});
    let made = app.client.import_documents(of.clone(), Json(part(vec![file]))).await.unwrap();
    let id = made.documents[0].document_id;
    let upload = FileUpload::from_bytes("x", "", None);
    app.client.import_bytes(DocumentPath { id }, Default::default(), upload).await.unwrap();
    let refused = patch(&app, id, json!({"content": "A text."})).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("content")), "{refused}");
    invariants::check(&app.pool).await;
    app.end().await;
}
