use super::*;
use crate::cli::archive::sorted::Sorting;
use futures_util::{FutureExt, future};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

#[test]
fn only_what_the_archive_holds_is_said_to_be_at_its_place() {
    for (code, is_of_the_archive) in [
        (Code::StorageFull, false),
        (Code::TimedOut, false),
        (Code::Internal, false),
        (Code::Unavailable, false),
        (Code::InvalidField, true),
        (Code::TooLarge, true),
    ] {
        let said = refused(Path::new("documents.ndjson"), Some(3), Failure::new(code, "so it is")).to_string();
        assert!(said.contains("so it is"), "{said}");
        assert_eq!(said.contains("documents.ndjson, line 3"), is_of_the_archive, "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_import_waits_for_a_service_that_went_away_in_its_middle_and_for_none_that_was_never_there() {
    let calls = Arc::new(AtomicUsize::new(0));
    let called = calls.clone();
    let service = move |_: http::Request<reqwest::Body>| {
        let answer = http::Response::builder();
        // As a proxy answers while the service starts anew.
        let (status, body) = match called.fetch_add(1, Ordering::Relaxed) {
            0 | 2 => (502_u16, ""),
            _ => (200, "{\"documents\": []}"),
        };
        future::ready(answer.status(status).body(reqwest::Body::from(body)).unwrap()).boxed()
    };
    // Another test of this process may have set it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client(Remote::new("http://service", "", reqwest::Client::new()).sent_by(Arc::new(service)));
    let predicates = Sorting::new().sorted().unwrap();
    let (archive, counts) = ("0123456789".to_owned(), Counts::default());
    let importing = Importing {
        client: &client,
        folder: PathBuf::new(),
        of: ImportedArchive { archive: archive.clone(), parent_id: None },
        checked: Checked { archive, format: 2, counts, predicates, base: None },
        summary: Summary::default(),
        bar: ProgressBar::hidden(),
        presence: Presence::default(),
    };
    assert!(importing.found(&[1]).await.is_err());
    assert!(importing.found(&[1]).await.unwrap().is_empty());
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    importing.found(&[2]).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 4, "the call that met the proxy alone was made again");
}
