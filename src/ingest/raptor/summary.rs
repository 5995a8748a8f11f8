//! The text of a summary, as far as it quotes. A language model may write another one.
use svc_client::words;
use svc_ranking::{Analyzer, extract, sentences};

words! {
    /// How the text of a summary was made.
    pub Method {
        /// It is the texts themselves.
        Concatenated = "concatenated",
        /// It is sentences of the texts.
        Extracted = "extracted",
        /// A language model wrote it.
        Written = "llm_summary",
    }
}

/// The text of a summary, and how it was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub text: String,
    pub method: Method,
    pub tokens: usize,
}

/// Counts tokens, and knows how many a summary may have.
pub struct Budget<'a> {
    pub tokens: usize,
    pub count: &'a dyn Fn(&str) -> usize,
    pub analyzer: &'a Analyzer,
    pub stop: &'a dyn Fn() -> bool,
}

/// Summarises texts, which come in the order in which they are read: all of them if they fit the budget, and otherwise the
/// sentences that cover the others best. `None` if it was stopped.
pub fn summarise(texts: &[&str], budget: &Budget<'_>) -> Option<Summary> {
    let whole = texts.join("\n\n");
    let tokens = (budget.count)(&whole);
    if tokens <= budget.tokens {
        return Some(Summary { text: whole, method: Method::Concatenated, tokens });
    }
    // Each sentence with the number of its text.
    let all: Vec<(usize, &str)> =
        texts.iter().enumerate().flat_map(|(at, text)| sentences(text).into_iter().map(move |s| (at, s))).collect();
    let quoted: Vec<&str> = all.iter().map(|(_, sentence)| *sentence).collect();
    let counts: Vec<u64> = quoted.iter().map(|sentence| (budget.count)(sentence).max(1) as u64).collect();
    let mut room = budget.tokens as u64;
    loop {
        let kept = extract(&quoted, &counts, room, budget.analyzer, budget.stop)?;
        let text = join(&all, &kept);
        let tokens = (budget.count)(&text);
        // A tokenizer may count more for sentences together than for each.
        if tokens <= budget.tokens && !kept.is_empty() {
            return Some(Summary { text, method: Method::Extracted, tokens });
        }
        if kept.is_empty() {
            break;
        }
        room = room.saturating_sub((tokens - budget.tokens) as u64);
    }
    // Not one sentence fits, so the first words must do.
    let mut text = quoted.first().copied().unwrap_or_default();
    while !text.is_empty() && (budget.count)(text) > budget.tokens {
        let half = text.floor_char_boundary(text.len() / 2);
        text = text[..half].rfind(char::is_whitespace).map_or(&text[..half], |space| &text[..space]).trim_end();
    }
    Some(Summary { tokens: (budget.count)(text), text: text.to_owned(), method: Method::Extracted })
}

/// Sentences of one text stay together, and a blank line separates those of different texts.
fn join(all: &[(usize, &str)], kept: &[usize]) -> String {
    let mut text = String::new();
    let mut last = None;
    for (of, sentence) in kept.iter().filter_map(|at| all.get(*at)) {
        match last {
            None => {}
            Some(last) if last == *of => text.push(' '),
            Some(_) => text.push_str("\n\n"),
        }
        text.push_str(sentence);
        last = Some(*of);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use svc_ranking::AnalyzerConfig;

    fn summary(texts: &[&str], tokens: usize) -> Summary {
        let analyzer = Analyzer::new(AnalyzerConfig::default());
        let count = |text: &str| text.split_whitespace().count();
        summarise(texts, &Budget { tokens, count: &count, analyzer: &analyzer, stop: &|| false }).unwrap()
    }

    #[test]
    fn texts_that_fit_are_kept_whole_and_others_are_quoted() {
        let texts =
            ["The heron waits in the reeds until a fish comes near.", "The coot dives for plants in deep water."];
        let whole = summary(&texts, 100);
        assert_eq!((whole.method, whole.text), (Method::Concatenated, texts.join("\n\n")));
        let quoted = summary(&texts, 12);
        assert_eq!(quoted.method, Method::Extracted);
        assert!(texts.contains(&quoted.text.as_str()), "{quoted:?}");
        let cut = summary(&texts, 3);
        assert_eq!((cut.text.as_str(), cut.tokens), ("The heron", 2), "not one sentence fits");
    }

    proptest! {
        #[test]
        fn a_summary_keeps_to_its_budget(texts in prop::collection::vec("([a-e]{1,4}[ .]){1,200}", 1..6), tokens in 1usize..80) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let summary = summary(&texts, tokens);
            prop_assert!(summary.tokens <= tokens, "{:?}", summary);
        }
    }
}
