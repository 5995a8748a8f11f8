use super::*;
use futures_util::{FutureExt, StreamExt, future, stream};
use std::{sync::Arc, time::Duration};

#[test]
fn a_row_that_no_import_would_read_ends_the_export() {
    let folder = tempfile::tempdir().unwrap();
    let mut export = Export::begin(&folder.path().join("archive"), None, "here".to_owned()).unwrap();
    export.take_up().unwrap();
    export.write(&[(16, "small")], Some("16".to_owned()), Stage::Tokens).unwrap();
    let refused = export.write(&[(17, " ".repeat(64 << 20))], None, Stage::Tokens).unwrap_err().to_string();
    assert!(refused.contains("documents.ndjson") && refused.contains("[17,"), "{refused}");
    assert_eq!((export.progress.cursor.as_deref(), export.progress.length), (Some("16"), 13));
}

#[tokio::test(start_paused = true)]
async fn an_export_ends_if_the_service_falls_silent_in_the_middle_of_the_facts() {
    let folder = tempfile::tempdir().unwrap();
    let mut export = Export::begin(&folder.path().join("archive"), None, "here".to_owned()).unwrap();
    export.progress.stage = Stage::Facts;
    export.take_up().unwrap();
    let service = |_: http::Request<reqwest::Body>| {
        let said = stream::iter([Ok("@prefix")]).chain(stream::pending::<io::Result<&'static str>>());
        future::ready(http::Response::new(reqwest::Body::wrap_stream(said))).boxed()
    };
    // Another test of this process may have set it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client(Remote::new("http://service", "", reqwest::Client::new()).sent_by(Arc::new(service)));
    let ended = tokio::time::timeout(Duration::from_secs(3_600), export.facts(&client)).await.unwrap();
    let said = ended.unwrap_err().to_string();
    assert!(said.contains("fell silent"), "{said}");
}
