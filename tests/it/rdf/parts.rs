//! Files that are larger than what the service takes in one call.
use crate::{
    cli::{lines, svc},
    support::{TestApp, Wish},
};
use svc_client::wire::{FactQuery, ValidAt};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_goes_in_parts_as_small_as_the_service_takes_them() {
    let settings = &[("SVC_RDF_MAX_TRIPLES", "1000")];
    let app = TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("graph.ttl");
    // A description that came in two calls would be refused, since a part of it would be missing.
    let described = |number: usize| {
        format!(
            "[] a rdf:Statement ; svc:validFrom '2024-01-01T00:00:00Z' ; rdf:subject e:t ; rdf:predicate e:p ; rdf:object {number} .\n"
        )
    };
    let prefixes = "@prefix e: <http://e/> . @prefix svc: <urn:svc:history#> . @prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .\n";
    let plain: String = (0..600).map(|number| format!("e:s e:p {number} .\n")).collect();
    let text = format!("{prefixes}{plain}{}", (0..480).map(described).collect::<String>());
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for (created, existing) in [(1_080, 0), (0, 1_080)] {
        let output = svc(&app, &["rdf", "import", file]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let done = lines(&output).remove(0);
        assert_eq!((done["created"].as_u64(), done["existing"].as_u64()), (Some(created), Some(existing)), "{done}");
    }
    // All of one node, and without a prefix.
    let one: String = (0..2_500).map(|number| format!("<http://e/u> <http://e/p> {number} .\n")).collect();
    std::fs::write(file, one).unwrap();
    let done = lines(&svc(&app, &["rdf", "import", file]).await).remove(0);
    assert_eq!((done["triples"].as_u64(), done["created"].as_u64()), (Some(2_500), Some(2_500)), "{done}");
    let query = FactQuery { predicate: Some("http://e/p".to_owned()), ..FactQuery::default() };
    let query = FactQuery { valid_at: Some(ValidAt::Any), limit: Some(1_000), ..query };
    let page = app.client.list_facts(query).await.unwrap();
    assert!(page.facts.len() == 1_000 && page.next_cursor.is_some());
    // What cannot be sent in smaller parts is refused as the service refuses it.
    std::fs::write(file, format!("<http://e/v> <http://e/p> \"{}\" .\n", "x".repeat(70_000))).unwrap();
    let refused = svc(&app, &["rdf", "import", file]).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("at most 65536 are kept"), "{said}");
    app.end().await;
}
