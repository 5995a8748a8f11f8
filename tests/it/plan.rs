//! Plans: what explain and analyze say, beside what an upload does.
use crate::support::{TestApp, repository, sample};
use serde_json::{Value, json};
use std::path::PathBuf;
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{DocumentPath, ExplainRequest, PatternsSource, Plan, PlanOutcome, ReprocessRequest, UploadQuery},
};

/// The tasks that plans show.
const PLANNED: [&str; 6] =
    ["extract:text", "extract:tables", "extract:images", "ocr", "structure:declared", "structure:inferred"];

/// The shipped samples, whole and broken.
fn samples() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(repository().join("tests/samples")).unwrap();
    let mut files: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| !["py", "README.md"].iter().any(|end| file.to_string_lossy().ends_with(end)));
    files.sort();
    assert!(files.len() > 8, "{files:?}");
    files
}

async fn rows_of_all_tables(app: &TestApp) -> Vec<i64> {
    let counts = "SELECT ARRAY[(SELECT count(*) FROM documents), (SELECT count(*) FROM task_queue), (SELECT count(*) FROM document_blobs),
                               (SELECT count(*) FROM node_evidence), (SELECT count(*) FROM pg_largeobject_metadata)]";
    sqlx::query_scalar(counts).fetch_one(&app.pool).await.unwrap()
}

/// A queued task as a row of a plan shows it: type, region, parameters, and the types of the tasks before it.
type Queued = (String, String, Value, Vec<String>);

async fn queued(app: &TestApp, id: i64) -> Vec<Queued> {
    sqlx::query_as(
        "SELECT t.task_type, t.write_mode, t.params, ARRAY(SELECT d.task_type FROM task_queue d WHERE d.id = ANY (t.dependencies) ORDER BY d.id)
           FROM task_queue t WHERE t.scope_document_id = $1 AND t.task_type = ANY ($2) ORDER BY t.id",
    )
    .bind(id)
    .bind(PLANNED.map(str::to_owned))
    .fetch_all(&app.pool)
    .await
    .unwrap()
}

fn enqueued(plan: &Plan) -> Vec<Queued> {
    let due = |task: &String| plan.tasks.iter().any(|row| &row.task == task && row.outcome == PlanOutcome::Enqueued);
    let rows = plan.tasks.iter().filter(|row| row.outcome == PlanOutcome::Enqueued);
    let shown = rows.map(|row| {
        let after = row.after.iter().filter(|task| due(task)).cloned().collect();
        (row.task.clone(), row.write_mode.to_string(), Value::Object(row.params.clone()), after)
    });
    shown.collect()
}

#[tokio::test]
async fn an_upload_queues_what_the_analysis_of_the_same_bytes_showed() {
    let app = TestApp::start().await;
    let options = json!({"structure": {"max_tokens": 64}});
    for file in samples() {
        let upload = async || FileUpload::from_path(&file, Some(options.clone())).await.unwrap();
        let before = rows_of_all_tables(&app).await;
        let analysis = app.client.analyze_file(upload().await).await.unwrap();
        assert_eq!(rows_of_all_tables(&app).await, before, "the analysis of {} stored something", file.display());
        assert_eq!(analysis.already_stored, None);
        assert_eq!(analysis.plan.is_some(), analysis.probe_failed.is_none(), "{}: {analysis:?}", file.display());

        let stored = app.client.upload_file(UploadQuery::default(), upload().await).await.unwrap();
        let frontier = app.settled(stored.document_id).await;
        let evidence = app.client.read_evidence(DocumentPath { id: stored.document_id }).await.unwrap().evidence;
        assert_eq!(analysis.file.content_hash, stored.content_hash);
        assert_eq!(analysis.file.detected_mime, stored.detected_mime);
        let rows = queued(&app, stored.document_id).await;
        match (&analysis.plan, &analysis.probe_failed) {
            (Some(plan), None) => {
                assert_eq!(rows, enqueued(plan), "{}", file.display());
                assert_eq!(evidence["plan"]["tasks"], serde_json::to_value(&plan.tasks).unwrap());
                assert_eq!(plan.options, evidence["options"]);
            }
            (None, Some(failure)) => {
                assert!(rows.is_empty(), "{}: {rows:?}, {frontier:?}", file.display());
                let attempt = &evidence["attempts"][0];
                let recorded = (&attempt["error_type"], &attempt["code"], &attempt["message"]);
                let shown = (&json!(failure.error_type), &json!(failure.code), &json!(failure.message));
                assert_eq!(recorded, shown, "{}", file.display());
            }
            both => panic!("{both:?}"),
        }

        let again = app.client.analyze_file(upload().await).await.unwrap().already_stored.unwrap();
        assert_eq!((again.document_id, again.options_agree), (stored.document_id, true));
        let other = FileUpload::from_path(&file, None).await.unwrap();
        let other = app.client.analyze_file(other).await.unwrap().already_stored.unwrap();
        assert_eq!((other.options["structure"]["max_tokens"].as_i64(), other.options_agree), (Some(64), false));
    }
    app.end().await;
}

#[tokio::test]
async fn token_vectors_are_asked_for_alike_wherever_options_are_taken() {
    let app = TestApp::start().await;
    let text = "# Loaves\n\nA loaf is put into the oven after an hour.\n";
    let upload = |options: Option<Value>| FileUpload::from_bytes("loaves.md", text, options);
    let explain = async |options: &Value| {
        let known = json!({"has_text_layer": true, "has_headings": true});
        let request = json!({"format": "text", "patterns": known, "options": options});
        app.client.explain_ingest(Json(serde_json::from_value(request).unwrap())).await
    };
    let asking = json!({"embed": {"tokens": true}});
    let without = app.client.analyze_file(upload(None)).await.unwrap().plan.unwrap();
    assert_eq!(without.options["embed"], json!({"tokens": false}));
    let analyzed = app.client.analyze_file(upload(Some(asking.clone()))).await.unwrap().plan.unwrap();
    let explained = explain(&asking).await.unwrap();
    let id = app.client.upload_file(UploadQuery::default(), upload(Some(asking))).await.unwrap().document_id;
    app.settled(id).await;
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(evidence["options"]["embed"], json!({"tokens": true}));
    for plan in [&analyzed, &explained] {
        assert_eq!((&plan.options, enqueued(plan)), (&evidence["options"], queued(&app, id).await));
    }
    assert_eq!(evidence["plan"]["tasks"], serde_json::to_value(&analyzed.tasks).unwrap());
    assert_eq!(analyzed.tasks, without.tasks, "the tasks that embed come after the plan, and are the same");

    let unknown = json!({"embed": {"token": true}});
    let again = ReprocessRequest { options: Some(unknown.clone()), replace: false };
    let refusals = [
        app.client.upload_file(UploadQuery::default(), upload(Some(unknown.clone()))).await.map(|_| ()),
        app.client.analyze_file(upload(Some(unknown.clone()))).await.map(|_| ()),
        explain(&unknown).await.map(|_| ()),
        app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(again))).await.map(|_| ()),
    ];
    for refused in refusals.map(Result::unwrap_err) {
        assert_eq!((refused.code, refused.status), (Code::UnknownOption, 400));
        assert_eq!(refused.members["key"], "embed.token");
    }
    app.end().await;
}

#[tokio::test]
async fn an_analysis_says_what_the_client_got_wrong() {
    let app = TestApp::start().await;
    let mut pdf = FileUpload::from_path(&sample("quarterly-review.pdf"), None).await.unwrap();
    pdf.declared_mime = Some("text/plain".to_owned());
    assert_eq!(app.client.analyze_file(pdf).await.unwrap().file.mime_agrees, Some(false));
    let undeclared = FileUpload::from_path(&sample("quarterly-review.pdf"), None).await.unwrap();
    assert_eq!(app.client.analyze_file(undeclared).await.unwrap().file.mime_agrees, None);

    let bytes = FileUpload::from_bytes("noise.bin", vec![0u8, 159, 146, 150, 0, 1, 2], None);
    let noise = app.client.analyze_file(bytes).await.unwrap();
    assert_eq!((noise.file.format, noise.file.mime_agrees, noise.plan), (None, None, None));
    assert_eq!(noise.probe_failed.unwrap().code, "unknown_format");

    let wrong = FileUpload::from_bytes("a.txt", "words", Some(json!({"structure": {"max_token": 1}})));
    assert_eq!(app.client.analyze_file(wrong).await.unwrap_err().code, Code::UnknownOption);
    app.end().await;
}

#[tokio::test]
async fn a_password_opens_what_an_analysis_examines() {
    let app = TestApp::start().await;
    let locked = async |password: Option<&str>| {
        let options = password.map(|password| json!({"extract": {"password": password}}));
        app.client.analyze_file(FileUpload::from_path(&sample("locked.pdf"), options).await.unwrap()).await
    };
    assert_eq!(locked(None).await.unwrap().probe_failed.unwrap().code, "encrypted");
    assert_eq!(locked(Some("not it")).await.unwrap_err().code, Code::WrongPassword);
    let plan = locked(Some("heron")).await.unwrap().plan.unwrap();
    assert!(!serde_json::to_string(&plan).unwrap().contains("heron"));
    assert!(plan.tasks.iter().any(|row| row.outcome == PlanOutcome::Enqueued));
    app.end().await;
}

#[tokio::test]
async fn a_format_is_explained_before_any_file_is_there() {
    let app = TestApp::start().await;
    let explain = async |body: Value| {
        let request: ExplainRequest = serde_json::from_value(body).unwrap();
        app.client.explain_ingest(Json(request)).await
    };
    insta::assert_json_snapshot!("explain_pdf", explain(json!({"format": "pdf"})).await.unwrap());
    let known = json!({"format": "xlsx", "patterns": {"has_sheets": true, "sheet_count": 3}});
    insta::assert_json_snapshot!("explain_xlsx", explain(known).await.unwrap());
    let unknown = explain(json!({"format": "cake"})).await.unwrap();
    assert_eq!((unknown.patterns_source, unknown.prober_available), (PatternsSource::NoProber, false));
    assert!(unknown.tasks.iter().all(|row| row.outcome == PlanOutcome::Impossible));
    let refused = explain(json!({"format": "pdf", "options": {"rollup": {"max_childs": 3}}})).await.unwrap_err();
    assert_eq!((refused.code, refused.status), (Code::UnknownOption, 400));
    assert_eq!(refused.members["key"], "rollup.max_childs");
    app.end().await;
}
