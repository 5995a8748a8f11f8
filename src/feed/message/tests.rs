use super::*;
use lapin::types::ShortString;
use serde_json::json;

/// The size of a file in a message.
const LIMIT: u64 = 1 << 20;
const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn said(properties: &BasicProperties) -> Said {
    Said::read(properties, "svc")
}

fn named(id: &str) -> BasicProperties {
    BasicProperties::default().with_message_id(id.into())
}

fn table(entries: &[(&str, AMQPValue)]) -> FieldTable {
    let mut table = FieldTable::default();
    for (name, value) in entries {
        table.insert((*name).into(), value.clone());
    }
    table
}

fn long(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

#[test]
fn an_envelope_and_headers_say_the_same() {
    let envelope = named("m").with_content_type(ENVELOPE.into());
    let body = json!({"v": 1, "source": {"inline_base64": "dGVzdA=="}, "sha256": HASH, "filename": "a.txt", "parent_id": 7,
        "private": true, "priority": 3, "options": {"rollup": {"penalty": 2.0}}, "event_time": "2026-05-01T12:00:00Z"});
    let one = said(&envelope).upload(None, body.to_string().as_bytes(), LIMIT).expect("an upload");
    let headers = table(&[
        ("svc-sha256", long(&format!("sha256:{}", HASH.to_uppercase()))),
        ("svc-filename", long("a.txt")),
        ("svc-parent-id", AMQPValue::LongLongInt(7)),
        ("svc-private", AMQPValue::Boolean(true)),
        ("svc-priority", long("3")),
        ("svc-options", long(r#"{"rollup": {"penalty": 2.0}}"#)),
        ("svc-event-time", long("2026-05-01T12:00:00Z")),
    ]);
    let two = said(&named("m").with_content_type("text/plain".into()))
        .upload(Some(&headers), b"test", LIMIT)
        .expect("an upload");
    assert_eq!((&one.source, &two.source), (&Source::Inline("dGVzdA==".to_owned()), &Source::Body));
    assert_eq!(two.declared_mime.as_deref(), Some("text/plain"));
    for upload in [&one, &two] {
        assert_eq!(upload.sha256.as_deref(), Some(format!("sha256:{HASH}").as_str()));
        assert_eq!((upload.query.parent_id, upload.query.private, upload.query.priority), (Some(7), true, 3));
        assert_eq!(upload.filename.as_deref(), Some("a.txt"));
        assert_eq!(upload.options, Some(json!({"rollup": {"penalty": 2.0}})));
        assert!(upload.query.event_time.is_some());
    }
}

#[test]
fn an_envelope_is_known_by_its_media_type_in_any_case_and_with_any_parameters() {
    let body = json!({"source": {"path": "a"}, "sha256": HASH}).to_string();
    let upload =
        |media_type: &str| said(&named("m").with_content_type(media_type.into())).upload(None, body.as_bytes(), LIMIT);
    for media_type in [format!("{ENVELOPE}; charset=utf-8"), format!(" {ENVELOPE} ;v=1"), ENVELOPE.to_uppercase()] {
        let read = upload(&media_type).expect("an envelope");
        assert_eq!(read.source, Source::Path("a".to_owned()), "{media_type}");
    }
    // Another type is the file's own, whose hash a header must name.
    let refused = upload(&format!("{ENVELOPE}-other")).expect_err("no envelope");
    assert_eq!(refused.members["field"], "sha256", "{refused}");
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let envelope = |body: Value| {
        let properties = named("m").with_content_type(ENVELOPE.into());
        said(&properties).upload(None, body.to_string().as_bytes(), LIMIT).expect_err("refused")
    };
    let path = json!({"path": "a"});
    for (body, names) in [
        (json!([]), "body"),
        (json!({"source": path}), "sha256"),
        (json!({"source": path, "sha256": "12"}), "sha256"),
        (json!({"source": path, "sha256": HASH, "nonsense": 1}), "nonsense"),
        (json!({"source": {"path": "a", "url": "b"}, "sha256": HASH}), "body"),
        (json!({"source": {"file": "a"}, "sha256": HASH}), "file"),
        (json!({"source": path, "sha256": HASH, "v": 2}), "v takes 1"),
        (json!({"source": path, "sha256": HASH, "priority": 101}), "priority"),
    ] {
        let refused = envelope(body.clone());
        assert!(refused.detail.contains(names), "{body}: {refused}");
    }
    assert!(said(&named("m").with_content_type(ENVELOPE.into())).upload(None, b"\xff", LIMIT).is_err());
    assert!(said(&named("m").with_type("svc.upload.v2".into())).upload(None, b"", LIMIT).is_err());
    for (name, value) in [
        ("svc-parent-id", long("seven")),
        ("svc-private", long("perhaps")),
        ("svc-options", long("{")),
        ("svc-options", long(r#"{"structure": {"max_tokens": 60, "max_tokens": 80}}"#)),
        ("svc-event-time", long("yesterday")),
        ("svc-filename", AMQPValue::Void),
        ("svc-filename", AMQPValue::LongString(b"\xff".to_vec().into())),
        ("svc-priority", long("101")),
    ] {
        let headers = table(&[("svc-sha256", long(HASH)), (name, value)]);
        let refused = said(&named("m")).upload(Some(&headers), b"test", LIMIT).expect_err(name);
        assert!(refused.detail.contains(name.trim_start_matches("svc-")), "{name}: {refused}");
    }
    let url = json!({"source": {"url": "https://example.org/a"}}).to_string();
    assert!(
        said(&named("m").with_content_type(ENVELOPE.into())).upload(None, url.as_bytes(), LIMIT).is_ok(),
        "it is fetched"
    );
}

#[test]
fn what_is_longer_than_a_file_may_be_is_refused_before_it_is_read() {
    let upload = |body: &str| said(&named("m").with_content_type(ENVELOPE.into())).upload(None, body.as_bytes(), LIMIT);
    let with = |options: String, text: String| {
        format!(r#"{{"source": {{"inline_base64": "{text}"}}, "sha256": "{HASH}", "options": {options}}}"#)
    };
    let file = "A".repeat(LIMIT.div_ceil(3) as usize * 4);
    assert!(
        upload(&with(format!("[{}0]", "0,".repeat(1_000)), file.clone())).is_ok(),
        "a file, and what is said of it"
    );
    let refused = upload(&with("[]".to_owned(), format!("{file}{}", "A".repeat(65 << 10)))).expect_err("too long");
    assert_eq!((refused.code, &refused.members["setting"]), (Code::TooLarge, &json!("SVC_BULK_INLINE_BYTES")));
    // It is no JSON, which nobody has found out.
    assert_eq!(upload(&"[".repeat(2 << 20)).expect_err("too long").code, Code::TooLarge);
    let many = format!("[{}0]", "0,".repeat(500_000));
    let refused = upload(&with(many.clone(), String::new())).expect_err("too many options");
    assert_eq!(refused.members["field"], "options", "{refused}");
    let headers = table(&[("svc-sha256", long(HASH)), ("svc-options", long(&many))]);
    let refused = said(&named("m")).upload(Some(&headers), b"test", LIMIT).expect_err("too many options");
    assert_eq!(refused.members["field"], "svc-options", "{refused}");
    let refused = said(&named("m")).upload(Some(&headers), &vec![0; LIMIT as usize + 1], LIMIT).expect_err("too long");
    assert_eq!(refused.code, Code::TooLarge);
}

#[test]
fn a_packed_body_is_refused_because_nothing_unpacks_it() {
    let headers = table(&[("svc-sha256", long(HASH))]);
    let upload =
        |coding: &str| said(&named("m").with_content_encoding(coding.into())).upload(Some(&headers), b"test", LIMIT);
    for packed in ["gzip", "Deflate", "identity, br", "base64"] {
        let refused = upload(packed).expect_err(packed);
        assert_eq!(refused.code, Code::UnsupportedMediaType, "{refused}");
        assert!(refused.detail.contains(&format!("`{packed}`")), "{refused}");
    }
    let envelope = named("m").with_content_type(ENVELOPE.into()).with_content_encoding("gzip".into());
    assert_eq!(said(&envelope).upload(None, b"\x1f\x8b", LIMIT).expect_err("packed").code, Code::UnsupportedMediaType);
    for plain in ["", "identity", "binary", "UTF-8"] {
        assert!(upload(plain).is_ok(), "{plain}");
    }
}

#[test]
fn a_message_has_an_id_and_no_outcome_goes_to_our_own_queues() {
    for id in ["", &"x".repeat(201), "a\0b"] {
        assert!(said(&named(id)).receipt("svc.ingest").is_err(), "{id:?}");
    }
    assert!(said(&BasicProperties::default()).receipt("svc.ingest").is_err());
    let to = |queue: &str| {
        let receipt = said(&named("m").with_reply_to(queue.into())).receipt("svc.ingest").expect("an id");
        receipt.reply_to
    };
    assert_eq!(to("answers").as_deref(), Some("answers"));
    assert_eq!((to("svc.ingest.upload"), to(""), to("a\0b")), (None, None, None));
}

#[test]
fn only_what_we_put_aside_says_who_published_it_first() {
    let by = |user: Option<&str>, uploader: Option<&str>| {
        let mut properties = named("m");
        if let Some(user) = user {
            properties = properties.with_user_id(ShortString::from(user));
        }
        if let Some(uploader) = uploader {
            properties =
                properties.with_headers(table(&[(UPLOADER, long(uploader)), (ROUNDS, AMQPValue::LongLongInt(3))]));
        }
        let said = said(&properties);
        (said.user, said.rounds)
    };
    let forged = named("m").with_user_id("mallory".into()).with_headers(table(&[(UPLOADER, long("victim"))]));
    let refused = said(&forged).upload(forged.headers().as_ref(), b"test", LIMIT).expect_err("refused");
    assert!(refused.detail.contains(UPLOADER), "{refused}");
    assert_eq!(by(Some("mallory"), Some("victim")), (Some("mallory".to_owned()), 0));
    assert_eq!(by(None, Some("victim")), (None, 0));
    assert_eq!(by(Some("svc"), Some("producer")), (Some("producer".to_owned()), 3));
    assert_eq!(by(Some("svc"), Some("")), (None, 3));
    assert_eq!(by(Some("producer"), None), (Some("producer".to_owned()), 0));
}
