use super::{NOBODY, of_messages, turns};
use svc_client::wire::Turn;

fn read(text: &str) -> Vec<Turn> {
    turns(text, "2024-05-01T10:00:00Z".parse().ok()).expect("it is an export").expect("it is a good one")
}

fn said(turns: &[Turn]) -> Vec<(&str, &str)> {
    turns.iter().map(|turn| (turn.speaker.as_str(), turn.text.as_str())).collect()
}

#[test]
fn messages_are_turns_in_the_forms_of_chats() {
    let list = r#"[{"role": "user", "content": "Hello"}, {"role": "assistant", "name": "Heron", "content": [{"type": "text", "text": "Good"}, {"type": "image_url"}, {"type": "text", "text": "day"}]},
                   {"role": "assistant", "content": null, "tool_calls": []}]"#;
    let expected = [("user", "Hello"), ("Heron", "Good\n\nday"), ("assistant", "")];
    assert_eq!(said(&read(list)), expected);
    assert_eq!(read(list)[1].role.as_deref(), Some("assistant"));
    assert_eq!(said(&read(&format!("{{\"title\": \"x\", \"messages\": {list}}}"))), expected);
    let lines = "{\"sender\": \"human\", \"text\": \"One\", \"created_at\": \"2024-05-01T10:00:00Z\"}\n\n{\"author\": {\"role\": \"assistant\"}, \"content\": {\"parts\": [\"Two\"]}, \"create_time\": 1714557600.5}\n{\"user\": \"U7\", \"ts\": \"1714557600.000100\", \"text\": \"Three\"}";
    let found = read(lines);
    assert_eq!(said(&found), [("human", "One"), ("assistant", "Two"), ("U7", "Three")]);
    let times: Vec<String> = found.iter().map(|turn| turn.time.unwrap().to_rfc3339()).collect();
    assert_eq!(times, ["2024-05-01T10:00:00+00:00", "2024-05-01T10:00:00.500+00:00", "2024-05-01T10:00:00+00:00"]);
    let empty = read(
        r#"[{"speaker": null, "name": "", "sender": "Ann", "content": null, "text": "Here", "time": null, "created_at": "2024-05-01T10:00:00Z"},
            {"sender": "Ben", "content": [], "text": "There"}]"#,
    );
    assert_eq!(said(&empty), [("Ann", "Here"), ("Ben", "There")], "what is empty hides nothing");
    assert!(empty[0].time.is_some());
    let odd = read(r#"[{"speaker": " A\nB\u0000 ", "text": "x", "role": "a role", "time": "noon"}]"#);
    assert_eq!((odd[0].speaker.as_str(), &odd[0].role, odd[0].time), ("A B", &None, None));
}

#[test]
fn subtitles_are_turns_of_their_speakers() {
    let web = "WEBVTT - a talk\n\nSTYLE\n::cue { color: red }\n\nNOTE nothing --> to see\n\nintro\n00:01.000 --> 00:04.000 align:start\n<v.loud Ann Lee>Good <b>morning</b>,\n<c.x>all</c>.</v>\n\n00:00:04.000 --> 00:00:06.500\n<v Ann Lee>Fish &amp; chips &lt;3\n\n00:01:00.000 --> 00:01:02.000\n<v Ben>No.</v> <v Ann Lee>Yes.\n";
    let found = read(web);
    assert_eq!(said(&found), [("Ann Lee", "Good morning, all. Fish & chips <3"), ("Ben", "No."), ("Ann Lee", "Yes.")]);
    assert_eq!(found[0].metadata["end"], 6.5);
    assert_eq!(
        (found[1].metadata["start"].as_f64(), found[1].time.unwrap().to_rfc3339().as_str()),
        (Some(60.0), "2024-05-01T10:01:00+00:00")
    );
    let subrip = "1\r\n00:00:01,000 --> 00:00:02,000\r\n{\\an8}<i>ANN: Where\r\nis it?</i>\r\n\r\n2\r\n00:00:02,500 --> 00:00:03,000\r\nNote: it is 10:30 {here}\r\n\r\n3\r\n00:01:03,000 --> 00:01:04,000\r\n- Ben: There.\r\n\r\n4\r\n01:00:00,000 --> 01:00:01,000\r\nBen: Here.\r\n";
    let found = read(subrip);
    assert_eq!(said(&found), [("ANN", "Where is it?"), (NOBODY, "Note: it is 10:30 {here}"), ("Ben", "There. Here.")]);
    assert_eq!((found[2].metadata["start"].as_f64(), found[2].metadata["end"].as_f64()), (Some(63.0), Some(3601.0)));
    let long = format!("WEBVTT\n\n{}", "00:01.000 --> 00:02.000\nword word word word word\n\n".repeat(200));
    assert!((3..=5).contains(&read(&long).len()));
}

#[test]
fn what_is_no_export_is_left_alone_and_a_bad_one_named() {
    for text in [
        "",
        "# Notes\n\nAnn: Hello.",
        "[1, 2]",
        "{\"a\": 1}",
        "[{\"role\": \"user\"}]",
        "[link](x) and text",
        "{broken",
        "WEBVTTX\n\n",
        "12\nyears ago",
        "[]",
        "{\"content\": 7}",
    ] {
        assert!(turns(text, None).is_none(), "{text}");
    }
    let refused = |text: &str| turns(text, None).unwrap().unwrap_err();
    assert!(refused("[{\"content\": \"x\"}]").detail.contains("message 0 has no speaker"));
    assert!(refused("WEBVTT\n\nNOTE x").detail.contains("has no turn"));
    let many = format!("[{}]", vec!["{\"role\": \"user\", \"content\": \"x\"}"; 10_001].join(","));
    assert!(refused(&many).detail.contains("10001 turns"));
    assert!(
        of_messages(&[serde_json::from_str("{\"role\": \"user\"}").unwrap()])
            .unwrap_err()
            .detail
            .contains("says nothing")
    );
    // Nothing of it takes for ever, or ends in a panic.
    for hostile in
        ["<".repeat(100_000), "{\\".repeat(50_000), "<v ".repeat(50_000), "A: ".repeat(50_000), "é<ü{".repeat(20_000)]
    {
        let cue = format!("WEBVTT\n\n00:01.000 --> 00:02.000\n{hostile}\n");
        let _ = turns(&cue, None);
    }
    let _ = turns(&"[".repeat(200_000), None);
    let late = turns("WEBVTT\n\n999999:59:59.999 --> 00:02.000\nx", Some(chrono::DateTime::<chrono::Utc>::MAX_UTC));
    assert_eq!(late.unwrap().unwrap()[0].time, None);
    for clock in ["99:99:99.999", "00:60.000", "00:00:60.000"] {
        for timing in [format!("{clock} --> 99:00:00.000"), format!("00:00.000 --> {clock}")] {
            let refused = refused(&format!("WEBVTT\n\n{timing}\nHello.\n"));
            assert!(refused.detail.contains(&format!("`{clock}` is no time")), "{}", refused.detail);
        }
    }
    let odd = read(r#"[{"speaker": "A", "text": "x", "time": "-010000-01-01T00:00:00Z"}]"#);
    assert_eq!(odd[0].time, None);
}
