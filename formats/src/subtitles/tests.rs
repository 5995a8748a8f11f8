use super::*;
use crate::{Pattern, detect};
use std::io::Cursor;

const MEETING: &str = include_str!("../../tests/files/weir-meeting.vtt");

fn of(format: Format, text: &str) -> Extraction {
    extract(format, Cursor::new(text), &Limits::default()).unwrap()
}

fn detected(text: &str) -> Option<Format> {
    detect(&mut Cursor::new(text)).unwrap().format
}

fn said(text: &str) -> Vec<String> {
    subtitles(text).unwrap().passages.into_iter().map(|passage| passage.text).collect()
}

#[test]
fn a_recording_reads_as_what_each_speaker_says_and_when() {
    assert_eq!(detected(MEETING), Some(Format::Vtt));
    let read = of(Format::Vtt, MEETING);
    let expected = "00:00:01 Ann Onym: The sluice has been leaking since the flood & the frost.\n\n\
        00:12:07 Żaneta Łoś: Then the eels cannot pass.\n\n\
        01:02:03 Ann Onym: We order oak planks from the sawmill.";
    assert_eq!((read.text.as_str(), read.headings.len(), read.headings_from.as_deref()), (expected, 0, None));
    let facts = ["subtitles", "speakers", "seconds"].map(|name| read.facts[name].clone());
    assert_eq!(facts, [serde_json::json!(4), serde_json::json!(2), serde_json::json!(3725)]);
    let patterns = probe(Format::Vtt, Cursor::new(MEETING), &Limits::default()).unwrap();
    assert_eq!(patterns.get(Pattern::HasTextLayer), Some(&true.into()));
}

#[test]
fn subtitles_of_a_film_read_in_any_encoding() {
    let film = "1\r\n00:00:01,000 --> 00:00:02,000\r\n{\\an8}<i>Le castor\r\nest caché.</i>\r\n \r\n2\r\n00:00:02,500 --> 00:00:03,000\r\nMARC: Où {ça}?\r\n";
    assert_eq!(detected(film), Some(Format::Srt));
    let expected = "00:00:01 Le castor est caché.\n\n00:00:02 MARC: Où {ça}?";
    assert_eq!(of(Format::Srt, film).text, expected);
    let wide: Vec<u8> = [0xFEFF].into_iter().chain(film.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(detect(&mut Cursor::new(&wide)).unwrap().format, Some(Format::Srt));
    assert_eq!(extract(Format::Srt, Cursor::new(&wide), &Limits::default()).unwrap().text, expected);
}

#[test]
fn captions_that_roll_up_are_said_once() {
    let rolling = "WEBVTT\nKind: captions\n\n\
        00:00:00.160 --> 00:00:02.149 align:start\n \nthe<00:00:00.400><c> heron</c>\n\n\
        00:00:02.149 --> 00:00:02.159 align:start\nthe heron\n \n\n\
        00:00:02.159 --> 00:00:04.000 align:start\nthe heron\nstands<00:00:03.000><c> still</c>\n\n\
        00:00:04.000 --> 00:00:04.010 align:start\nstands still\n \n\n\
        00:00:09.000 --> 00:00:10.000\nstands still\nand waits\n";
    assert_eq!(said(rolling), ["the heron stands still stands still and waits"]);
    // Whoever says the same twice, says it twice.
    assert_eq!(said("WEBVTT\n\n00:01.000 --> 00:02.000\nNo.\n\n00:02.000 --> 00:03.000\nNo.\n"), ["No. No."]);
}

#[test]
fn what_stands_behind_an_empty_line_or_below_a_bad_time_is_said() {
    let film = "1\n00:00:01,000 --> 00:00:02,000\nAll\n\nof it.\n\n2\n00:00:03 --> 00:00:04\nAnd this.\n";
    assert_eq!(said(film), ["All of it. And this."]);
    let web = "WEBVTT\nKind: x\n\n00:01.000 --> 00:02.000\nAll\n\nof it.\n\nNOTE not\nthis\n\nid\n00:03.000 --> 00:04.000\nEnd.\n";
    assert_eq!(said(web), ["All of it. End."]);
}

#[test]
fn no_number_is_said_and_no_words_are_lost_where_empty_lines_are_missing() {
    let film = "1\n00:00:01,000 --> 00:00:02,000\nOne\n2\n00:00:02,000 --> 00:00:03,000\n42\n 3 \n00:00:03,000 --> 00:00:04,000\nThree\n";
    assert_eq!(said(film), ["One 42 Three"]);
    let film = "1\n00:00:01,000 --> 00:00:02,000\nAll\n\nof it\n2\n00:00:02,000 --> 00:00:03,000\nTwo\n\nunnumbered\n00:00:03,000 --> 00:00:04,000\nThree\n";
    assert_eq!(said(film), ["All of it Two unnumbered Three"]);
    let web = "WEBVTT\nKind: captions\n00:01.000 --> 00:02.000\n7\n00:02.000 --> 00:03.000\nAll\n\nof it\nname\n00:03.000 --> 00:04.000\nThree\n";
    assert_eq!(said(web), ["7 All of it Three"]);
}

#[test]
fn only_marks_are_left_out_and_references_read_as_their_characters() {
    let one = |line: &str| said(&format!("WEBVTT\n\n00:01.000 --> 00:02.000\n{line}\n"));
    assert_eq!(one("if 5 < 6 and 7 > 3 I <3 you <> ->"), ["if 5 < 6 and 7 > 3 I <3 you <> ->"]);
    assert_eq!(one("<i>so</i> <00:00:01.500><c.loud>it</c> <font color=\"red\">is</font>"), ["so it is"]);
    let references = "It&#39;s &quot;x&quot; &#x26; &apos;y&apos; &amp;lt; AT&T &unknown; &#0; &#x110000; R&B;";
    assert_eq!(one(references), ["It's \"x\" & 'y' &lt; AT&T &unknown; &#0; &#x110000; R&B;"]);
    // Each of these would take the square of its length if the end were looked for.
    for bracket in ["<1", "<<", "&", "&#1"] {
        let line = bracket.repeat(200_000);
        assert_eq!(one(&format!("{line}>")), [format!("{line}>")]);
    }
}

#[test]
fn what_only_begins_like_subtitles_is_text() {
    for text in [
        "WEBVTT is a format for subtitles.\n\nIt has times.",
        "WEBVTT\n",
        "WEBVTT\n\nSubtitles are written so:\n\n00:01.000 --> 00:02.000\nx\n\n# More of this",
        "WEBVTT\n\nThey begin\nwith a time:\n00:01.000 --> 00:02.000\nx",
        "WEBVTTX\n\n00:01.000 --> 00:02.000\nx",
        "1\nThe first chapter --> the second",
        "12\nyears ago",
        "00:00:01,000 --> 00:00:02,000\nx",
    ] {
        assert_eq!(detected(text), Some(Format::Text), "{text}");
    }
    let error = extract(Format::Srt, Cursor::new("words"), &Limits::default()).unwrap_err();
    assert!(error.to_string().contains("SubRip"), "{error}");
}

#[test]
fn a_time_that_is_none_costs_no_words() {
    let read = of(Format::Vtt, "WEBVTT\n\n00:61.000 --> 00:62.000\n# Hello\n\n00:02.000 --> 00:99.000\nthere\n");
    assert_eq!(read.text, "00:01:01 # Hello there");
    assert_eq!(read.facts["bad_time"], "00:61.000");
}

#[test]
fn a_long_recording_is_cut_into_passages_and_bounded() {
    let long = format!("WEBVTT\n\n{}", "00:01.000 --> 00:02.000\nword word word word word\n\n".repeat(200));
    let found = said(&long);
    assert!((3..=5).contains(&found.len()) && found.iter().all(|text| text.len() < PASSAGE));
    let limits = Limits { text_bytes: 1_000, ..Limits::default() };
    let error = extract(Format::Vtt, Cursor::new(&long), &limits).unwrap_err();
    assert_eq!(error.limit(), Some(crate::Limit::TextBytes));
    let blanks = " ".repeat(500_000) + &"<v a>".repeat(100_000) + "b";
    let hostile = ["<".repeat(100_000), "{\\".repeat(50_000), "<v a>b".repeat(20_000), "A: ".repeat(50_000), blanks];
    for hostile in hostile {
        let read = of(Format::Vtt, &format!("WEBVTT\n\n00:01.000 --> 00:02.000\n{hostile}\n"));
        assert!(read.text.starts_with("00:00:01 "), "{}", &read.text[..20]);
    }
}
