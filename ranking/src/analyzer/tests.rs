use super::{walk::MAX_TERM_CHARS, *};
use std::collections::HashSet;

fn terms(config: AnalyzerConfig, text: &str) -> Vec<String> {
    let mut out = vec![];
    Analyzer::new(config).each_term(text, |term| out.push(term.into()));
    out
}

/// What a text is found by, other than its words.
fn others(config: AnalyzerConfig, text: &str) -> String {
    let mut out: Vec<String> = vec![];
    Analyzer::new(config).tokens_with_ranges(text, |token| {
        if token.kind != Kind::Word {
            out.push(token.term.into());
        }
    });
    out.join(" ")
}

#[test]
fn text_becomes_the_terms_a_reader_expects() {
    let bare = AnalyzerConfig::default();
    let english = AnalyzerConfig { stop_words: Some(StopWords::Keep), ..bare };
    let plain = AnalyzerConfig { language: Language::None, ..bare };
    let german = AnalyzerConfig { language: Language::German, ..bare };
    let russian = AnalyzerConfig { language: Language::Russian, ..bare };
    for (config, text, expected) in [
        (english, "Running runners RAN, quickly!", "run runner ran quick"),
        (english, "the cat\u{2019}s whiskers don't", "the cat whisker don't"),
        (bare, "The cat is on the mat", "cat mat"),
        (plain, "Running Straße ÉCOLE", "running strasse ecole"),
        (german, "Häuser Haus Straßen", "haus haus strass"),
        (russian, "мой дома ёлки", "мо дом елк"),
        (english, "ISO 9001, 3.14 and 1,000", "iso 9001 3.14 and 1,000"),
        (english, "東京都 に", "東京 京都 に"),
        (english, "カタカナー ｶﾞｯﾀ", "カタ タカ カナ ナー ガッ ッタ"),
        (english, "한국어 a말", "한국 국어 a 말"),
        (english, "漢、字", "漢 字"),
        (english, "ประเทศญี่ปุ่น และน้ำ", "ประเทศ ญี่ปุ่น และ น้ำ"),
        (english, "U.S.A. USA", "usa usa"),
        (english, "a 👩🏽\u{200d}🚀 ❤\u{fe0f}🇯🇵", "a 👩\u{200d}🚀 ❤ 🇯🇵"),
        (english, " \u{0} -- ... \u{200d}", ""),
    ] {
        assert_eq!(terms(config, text).join(" "), expected, "{text:?}");
    }
}

#[test]
fn names_are_found_by_their_parts() {
    let config = AnalyzerConfig::default();
    for (text, whole, parts) in [
        ("get_user_by_id", "get_user_by_id", "get user id"),
        ("__init__", "init", ""),
        ("src/handlers/user.rs", "src handler user.rs", "user rs"),
        ("v1.2.3", "v1.2.3", "1.2.3 v1 2 3"),
        ("1.2.3", "1.2.3", ""),
        ("HttpError::NotFound", "httperror notfound", ""),
        ("l'école O\u{2019}Neill don't", "l'ecol o'neil don't", "ecol neill"),
        ("👩\u{200d}🚀", "👩\u{200d}🚀", "👩 🚀"),
        ("東京都", "東京 京都", "東 京 都"),
    ] {
        assert_eq!((terms(config, text).join(" ").as_str(), others(config, text).as_str()), (whole, parts), "{text}");
    }
}

#[test]
fn one_word_in_many_spellings_is_one_term() {
    for (_, language) in Language::NAMES {
        let analyzer = Analyzer::new(AnalyzerConfig { language, ..Default::default() });
        for spellings in [
            &["café", "cafe\u{301}", "CAFÉ", "cafe", "ｃａｆé", "ca\u{ad}fé", "c\u{200d}afe\u{301}"][..],
            &["file", "\u{fb01}le", "ＦＩＬＥ"],
            &["resume", "résumé", "Résumé"],
            &["ガラス", "ｶﾞﾗｽ", "カ\u{3099}ラス"],
            &["한국", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{116e}\u{11a8}"],
        ] {
            let text: Bag = analyzer.bag(&spellings.join(" "));
            for query in spellings {
                for other in spellings {
                    let (asked, there) = (analyzer.query(query), analyzer.bag(other));
                    assert!(
                        asked.terms.keys().any(|term| there.terms.contains_key(term)),
                        "{language:?} {query} {other}"
                    );
                }
                // Where each text has its own language, a query has the stems of others too.
                let asks = analyzer.query(query);
                assert!(language == Language::Detect || asks.terms.keys().all(|term| text.terms.contains_key(term)));
            }
        }
    }
}

#[test]
fn each_text_is_read_in_its_language_and_a_query_in_all() {
    let analyzer = Analyzer::new(AnalyzerConfig { language: Language::Detect, ..Default::default() });
    for (text, found, not) in [
        (
            "Die alten Häuser in der kleinen Stadt gehören seit vielen Jahren der Gemeinde.",
            "Haus hausern kleine",
            "home the",
        ),
        (
            "The old houses of the small town have belonged to the parish for many years.",
            "house belonging",
            "maison the",
        ),
        (
            "Les vieilles maisons de la petite ville appartiennent depuis longtemps à la commune.",
            "maison vieille",
            "mais the",
        ),
        ("Старые дома в маленьком городе давно принадлежат общине этой деревни.", "община дом городом", "the"),
        ("Häuser", "häuser hauser", "Haus"),
    ] {
        let there = analyzer.bag(text);
        let finds = |word: &str| analyzer.query(word).terms.keys().any(|term| there.terms.contains_key(term));
        for word in found.split(' ') {
            assert!(finds(word), "{word} in {there:?}");
        }
        for word in not.split(' ') {
            assert!(!finds(word), "{word} in {there:?}");
        }
    }
}

#[test]
fn a_huge_word_is_no_term_and_adds_no_length() {
    let mut text = "x".repeat(2 << 20);
    text.push_str(" tail");
    let bag = Analyzer::new(AnalyzerConfig::default()).bag(&text);
    assert_eq!(bag.length, 1);
    assert_eq!(bag.terms.keys().map(|term| &**term).collect::<Vec<_>>(), ["tail"]);
    let just_fits = "é".repeat(MAX_TERM_CHARS);
    assert_eq!(terms(AnalyzerConfig { language: Language::None, ..Default::default() }, &just_fits).len(), 1);
}

#[test]
fn megabytes_of_anything_are_read_in_time() {
    let analyzer = Analyzer::new(AnalyzerConfig::default());
    let marks = format!("caf\u{65}{} tail", "\u{301}\u{302}\u{316}".repeat(1 << 18));
    assert_eq!(
        analyzer.bag(&marks).terms.keys().map(|term| &**term).collect::<HashSet<_>>(),
        HashSet::from(["cafe", "tail"])
    );
    for piece in
        ["a_", "a.b", "👩\u{200d}", "漢", "\u{200d}", "กา", "\u{301}", "ﷺ", "e\u{301}", "\u{1100}", "🇯", "'a", "_", "é"]
    {
        let text = piece.repeat((1 << 20) / piece.len());
        let mut end = 0;
        analyzer.tokens_with_ranges(&text, |token| {
            assert!(token.term.chars().count() <= 3 * MAX_TERM_CHARS && !token.term.is_empty());
            end = end.max(token.range.end);
        });
        assert!(end <= text.len());
    }
}

#[test]
fn a_frequency_stops_at_what_its_column_holds() {
    let bag = Analyzer::new(AnalyzerConfig::default()).bag(&"wing ".repeat(40_000));
    assert_eq!((bag.length, bag.terms["wing"]), (40_000, MAX_TF));
}

#[test]
fn the_words_of_titles_count_as_often_as_they_weigh() {
    let analyzer = Analyzer::new(AnalyzerConfig::default());
    let (titles, text) = ("Wing flutter", "Wing flutter\nThe wing of a jet");
    let bag = |weight| analyzer.weighted_bag(text, titles.len(), weight);
    assert_eq!(bag(1), analyzer.bag(text));
    let of = |bag: &Bag| ["wing", "flutter", "jet"].map(|term| bag.terms.get(term).copied().unwrap_or_default());
    assert_eq!((of(&bag(1)), of(&bag(3)), of(&bag(0))), ([2, 1, 1], [4, 3, 1], [1, 0, 1]));
    assert_eq!(bag(3).length, bag(1).length + 4, "the length counts what the terms count");
    assert_eq!(analyzer.weighted_bag(&"wing ".repeat(40_000), usize::MAX, 10).terms["wing"], MAX_TF);
}

#[test]
fn stop_words_of_a_language_without_a_list_are_refused() {
    let config =
        AnalyzerConfig { language: Language::French, stop_words: Some(StopWords::Remove), ..Default::default() };
    assert!(config.validate().expect_err("refused").to_string().contains("analyzer.language"));
    assert!(ENGLISH_STOP_WORDS.is_sorted());
}

/// A range holds what the term was made from: analysed alone it gives the term again.
fn check_ranges(analyzer: &Analyzer, text: &str) {
    let mut last = 0;
    analyzer.tokens_with_ranges(text, |token| {
        let piece = text.get(token.range.clone()).expect("characters are whole");
        let alone = analyzer.bag(piece);
        assert!(alone.terms.contains_key(token.term), "{:?} is not of {piece:?} in {text:?}", token.term);
        assert!(token.range.end >= last || token.kind != Kind::Word, "{text:?}");
        last = if token.kind == Kind::Word { token.range.end } else { last };
    });
}

#[test]
fn a_token_knows_where_it_stands() {
    let analyzer = Analyzer::new(AnalyzerConfig::default());
    let text = "The cafe\u{301}s of \u{fb01}les: get_users, 東京都 ประเทศญี่ปุ่น 👩🏽\u{200d}🚀 l'école!";
    check_ranges(&analyzer, text);
    let mut found = vec![];
    let wanted = analyzer.query("café user 京 ประเทศ école file");
    analyzer.tokens_with_ranges(text, |token| {
        if wanted.terms.contains_key(token.term) {
            found.push(&text[token.range]);
        }
    });
    assert_eq!(found, ["cafe\u{301}s", "\u{fb01}les", "users", "京", "ประเทศ", "l'école"]);
}

proptest::proptest! {
    #[test]
    fn no_text_breaks_any_language(text in "\\PC{0,80}") {
        for (_, language) in Language::NAMES {
            for term in terms(AnalyzerConfig { language, ..Default::default() }, &text) {
                proptest::prop_assert!(!term.is_empty() && term.chars().count() <= 3 * MAX_TERM_CHARS);
                proptest::prop_assert!(!term.contains('\0'));
            }
        }
    }

    #[test]
    fn a_text_has_what_a_query_with_its_words_looks_for(text in "([a-zé'_.0-9 ]|\\PC|[\u{300}-\u{304}\u{200d}🚀👩東京กานé]){0,40}") {
        for language in [Language::None, Language::English, Language::French, Language::Turkish] {
            let analyzer = Analyzer::new(AnalyzerConfig { language, ..Default::default() });
            let there = analyzer.bag(&text);
            for term in analyzer.query(&text).terms.keys() {
                proptest::prop_assert!(there.terms.contains_key(term), "{term:?} is not in {there:?}");
            }
            let mut last = 0;
            analyzer.tokens_with_ranges(&text, |token| {
                assert!(text.get(token.range.clone()).is_some_and(|piece| !piece.is_empty()), "{token:?}");
                assert!(token.range.start >= last || token.kind != Kind::Word, "{token:?} of {text:?}");
                last = if token.kind == Kind::Word { token.range.start } else { last };
            });
        }
    }
}
