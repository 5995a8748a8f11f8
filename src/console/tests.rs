use super::{acts, caught, layout, now, say};
use crate::store::queue;
use axum::{Router, body::Body, extract::Request, routing::get};
use bytes::Bytes;
use http::StatusCode;
use svc_client::wire::{Finding, FindingKind, OverviewResponse};
use tower::ServiceExt;

#[tokio::test]
async fn a_page_whose_making_panics_is_answered_with_one_that_says_so() {
    async fn page() -> &'static str {
        panic!("a page that nobody thought of")
    }
    let pages = caught(Router::new().route("/", get(page)));
    let answer = pages.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    let page = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    assert!(String::from_utf8_lossy(&page).contains("could not be made"));
}

#[test]
fn numbers_and_times_are_said_for_people() {
    assert_eq!(
        [0, 7, 999, 1000, 4433, 1_234_567, -1500].map(say::count),
        ["0", "7", "999", "1,000", "4,433", "1,234,567", "-1,500"]
    );
    assert_eq!(
        [-3.0, 0.4, 59.9, 60.0, 5460.0, 200_000.0].map(say::time),
        ["0 s", "0 s", "59 s", "1 min", "1 h 31", "2 d"]
    );
    assert_eq!([0.0004, 0.04, 9.84, 62.0].map(say::took), ["0 ms", "40 ms", "9.8 s", "1 min"]);
    assert_eq!([0, 1023, 1024, 50_541_363].map(say::bytes), ["0 B", "1023 B", "1.0 KiB", "48.2 MiB"]);
    assert_eq!((say::many(1, "task"), say::many(0, "task")), ("1 task".to_owned(), "0 tasks".to_owned()));
}

#[test]
fn a_form_leads_back_to_the_console_alone() {
    let back = |text: &str| acts::back(&acts::fields(&Bytes::from(format!("back={}", layout::part(text))))).to_owned();
    assert_eq!(back("/tasks?type=embed&file=3"), "/tasks?type=embed&file=3");
    for elsewhere in [
        "",
        "//evil.example",
        "/\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/a b",
        "/a\r\nSet-Cookie: x",
    ] {
        assert_eq!(back(elsewhere), "/", "{elsewhere:?}");
    }
}

#[test]
fn what_goes_into_an_address_comes_out_of_it() {
    let hostile = "<script>\"'&?=#/%\u{202e}é";
    assert!(layout::part(hostile).bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~:%".contains(&byte)));
    assert_eq!(layout::decoded(&layout::part(hostile)), hostile);
    assert_eq!(layout::query(&[("a", ""), ("b", "x y")]), "b=x%20y");
}

#[test]
fn what_is_bad_is_told_before_what_only_needs_a_look() {
    let found = |kind, about: &str| Finding {
        kind,
        about: about.to_owned(),
        tasks: 1,
        seconds: 60.0,
        remedy: "free space".to_owned(),
    };
    let mut findings: Vec<Finding> =
        ["a", "b", "c", "d", "e", "f"].map(|name| found(FindingKind::Paused, name)).into_iter().collect();
    findings.push(found(FindingKind::Disk, "no room"));
    let overview = OverviewResponse {
        at: chrono::Utc::now(),
        queue: queue::state(&[], &[]),
        task_types: Vec::new(),
        findings,
        workers: Vec::new(),
        throughput: Vec::new(),
        regions_held: 0,
    };
    let told: Vec<String> = now::notes(&overview).into_iter().map(|(_, note)| note.into_string()).collect();
    assert!(told.len() == 7 && told[0].contains("The disk is full or nearly full: no room."), "{told:?}");
    assert!(told[1].contains("<b>a</b> has been paused") && told[6].contains("<b>f</b> has been paused"), "{told:?}");
}
