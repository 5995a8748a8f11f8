//! What an endpoint answers, read leniently: unknown fields, missing counts, and reasoning in any of its places.
use serde_json::Value;

/// What a call took, as the server counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// What was received so far.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The model that the server names.
    pub model: Option<String>,
    /// Absent if the server does not count.
    pub usage: Option<Usage>,
    /// Why the answer ended; absent until it did.
    pub finish: Option<String>,
    /// Whether a word has come, be it of the answer, of thoughts or of a refusal.
    pub has_begun: bool,
    has_reasoned: bool,
    /// What the model says in place of an answer that it refuses.
    refusal: String,
    thoughts: Thoughts,
}

/// Why an answer has no letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The model thought and said nothing.
    Thought,
    /// The model refuses to answer, or a filter lets no answer through.
    Refused(String),
    Empty,
}

impl Received {
    /// Takes a message of the server; returns the text that it adds. An error in it is the `Err`.
    pub fn take(&mut self, message: &Value) -> Result<String, String> {
        if let Some(error) = message.get("error").filter(|error| !error.is_null()) {
            return Err(error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned));
        }
        if let Some(model) = message["model"].as_str().filter(|model| !model.is_empty()) {
            self.model = Some(model.to_owned());
        }
        let count = |name: &str| message["usage"][name].as_u64();
        if let Some(prompt_tokens) = count("prompt_tokens") {
            let completion_tokens = count("completion_tokens").unwrap_or_default();
            self.usage = Some(Usage { prompt_tokens, completion_tokens });
        }
        let choice = &message["choices"][0];
        if let Some(finish) = choice["finish_reason"].as_str() {
            self.finish = Some(finish.to_owned());
        }
        let said = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
        let reasons =
            ["reasoning_content", "reasoning"].iter().any(|name| said[*name].as_str().is_some_and(|t| !t.is_empty()));
        // Some models show nothing of their thoughts but what they cost.
        let details = &message["usage"]["completion_tokens_details"];
        let hidden = details["reasoning_tokens"].as_u64().is_some_and(|tokens| tokens > 0);
        let (content, refusal) = (text(&said["content"]), said["refusal"].as_str().unwrap_or_default());
        self.has_begun |= reasons || !content.is_empty() || !refusal.is_empty();
        self.refusal.push_str(refusal);
        let text = self.thoughts.without(&content);
        self.has_reasoned |= reasons || hidden || self.thoughts.were_any();
        Ok(text)
    }

    /// The whole text without the thoughts before it, if only their end is in it.
    pub fn without_thoughts<'t>(&mut self, text: &'t str) -> &'t str {
        let said = &text[after_thoughts(text)..];
        self.has_reasoned |= said.len() < text.len();
        said
    }

    /// Why a text that was received as a whole says nothing.
    pub fn silence(&self, text: &str) -> Silence {
        let finish = self.finish.as_deref();
        // A server that does not tell of thoughts has nothing else to take all tokens without a single character.
        let has_reasoned = self.has_reasoned || (text.is_empty() && finish == Some(TOO_LONG));
        match self.refusal.trim() {
            "" if finish == Some(FILTERED) => Silence::Refused("its filter lets no answer to this through".to_owned()),
            "" if has_reasoned => Silence::Thought,
            "" => Silence::Empty,
            refusal => Silence::Refused(format!("it says: {refusal}")),
        }
    }

    /// Whether the answer was broken off: it was as long as it may be, or a filter ended it.
    pub fn is_cut(&self) -> bool {
        matches!(self.finish.as_deref(), Some(TOO_LONG | FILTERED))
    }

    /// The text that was held back because it looked like the beginning of a mark.
    pub fn rest(&mut self) -> String {
        self.thoughts.rest()
    }
}

/// A text, or the texts of a list of parts.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";
/// The words for the ends of answers that are not whole.
const TOO_LONG: &str = "length";
const FILTERED: &str = "content_filter";

/// Where the answer begins in a text that has the end of thoughts but not their beginning, because the server has put that at the end of the prompt; 0 in
/// other texts. The line ends behind the mark: a text that speaks of the mark goes on. JSON is no thought, whatever follows it.
pub fn after_thoughts(text: &str) -> usize {
    let begun = text.trim_start();
    if begun.starts_with('{') || begun.starts_with("```") {
        return 0;
    }
    let ends_line = |rest: &str| {
        let rest = rest.trim_start_matches([' ', '\t', '\r']);
        rest.is_empty() || rest.starts_with('\n')
    };
    let mut marks = text.match_indices(CLOSE).filter(|(at, mark)| ends_line(&text[at + mark.len()..]));
    let end = marks.next().filter(|(at, _)| !text[..*at].contains(OPEN));
    end.map_or(0, |(at, mark)| at + mark.len())
}

/// Takes the block of reasoning from the beginning of a text that comes in pieces.
#[derive(Clone, Debug, Default)]
struct Thoughts {
    held: String,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing but white space or a part of the opening mark has come.
    #[default]
    Begins,
    Thinks,
    /// The reasoning is over, and only white space has come since.
    Pauses,
    /// The answer has begun; `true` if there was reasoning before it.
    Speaks(bool),
}

impl Thoughts {
    fn were_any(&self) -> bool {
        matches!(self.state, State::Thinks | State::Pauses | State::Speaks(true))
    }

    fn without(&mut self, piece: &str) -> String {
        if matches!(self.state, State::Speaks(_)) {
            return piece.to_owned();
        }
        self.held.push_str(piece);
        if self.state == State::Pauses {
            return self.first();
        }
        if self.state == State::Begins {
            let begun = self.held.trim_start();
            if begun.starts_with(OPEN) {
                self.state = State::Thinks;
            } else if !OPEN.starts_with(begun) {
                self.state = State::Speaks(false);
                return std::mem::take(&mut self.held);
            }
        }
        if self.state == State::Thinks {
            if let Some((_, said)) = self.held.split_once(CLOSE) {
                self.state = State::Pauses;
                self.held = said.to_owned();
                return self.first();
            }
            // Only the end of it can be the beginning of the closing mark.
            let keep = self.held.len().saturating_sub(CLOSE.len());
            let keep = (keep..=self.held.len()).find(|at| self.held.is_char_boundary(*at)).unwrap_or_default();
            self.held.drain(..keep);
        }
        String::new()
    }

    /// The beginning of the answer after the reasoning.
    fn first(&mut self) -> String {
        let text = std::mem::take(&mut self.held).trim_start().to_owned();
        if !text.is_empty() {
            self.state = State::Speaks(true);
        }
        text
    }

    fn rest(&mut self) -> String {
        match self.state {
            State::Begins => std::mem::take(&mut self.held),
            State::Thinks | State::Pauses | State::Speaks(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn said(text: &str, size: usize) -> (String, bool) {
        let characters: Vec<char> = text.chars().collect();
        let mut received = Received::default();
        let mut all = String::new();
        for piece in characters.chunks(size) {
            let piece: String = piece.iter().collect();
            all += &received.take(&json!({"choices": [{"delta": {"content": piece}}]})).expect("no error");
        }
        all += &received.rest();
        (all, received.has_reasoned)
    }

    #[test]
    fn reasoning_is_left_out_however_the_text_is_cut() {
        for size in 1..20 {
            for (text, want) in [
                ("Plain – text", ("Plain – text", false)),
                ("<think>é < b </thin k</think>\n\nYes.", ("Yes.", true)),
                ("  <think>for ever and ever, without an end", ("", true)),
                ("<thing> is a word", ("<thing> is a word", false)),
                ("<thi", ("<thi", false)),
                ("a <think>b</think>", ("a <think>b</think>", false)),
            ] {
                let (all, reasoned) = said(text, size);
                assert_eq!((all.as_str(), reasoned), want, "{text} in pieces of {size}");
            }
        }
    }

    #[test]
    fn thoughts_whose_beginning_stands_in_the_prompt_are_no_answer() {
        for (text, want) in [
            ("Okay, the user wants \"<\".\n</think>\n\nYes.", ("\n\nYes.", true)),
            ("It may end with \"</think>\" there.\n</think> \r\nYes.", (" \r\nYes.", true)),
            ("On and on.\n</think>", ("", true)),
            ("The mark </think> ends the thoughts.", ("The mark </think> ends the thoughts.", false)),
            ("{\"quote\": \"a</think>\\nb\"}", ("{\"quote\": \"a</think>\\nb\"}", false)),
            ("{\"answered\": true}\n</think>", ("{\"answered\": true}\n</think>", false)),
            ("a <think>b</think>\nc", ("a <think>b</think>\nc", false)),
            ("Plain", ("Plain", false)),
        ] {
            let mut received = Received::default();
            assert_eq!((received.without_thoughts(text), received.has_reasoned), want, "{text}");
        }
    }

    #[test]
    fn an_answer_without_a_letter_was_thought_refused_or_is_empty() {
        let chunk = |content: &str, finish: &str| json!({"choices": [{"message": {"content": content}, "finish_reason": finish}]});
        let mut hidden = chunk("", "length");
        hidden["usage"] =
            json!({"prompt_tokens": 9, "completion_tokens": 8, "completion_tokens_details": {"reasoning_tokens": 8}});
        let mut counted = hidden.clone();
        counted["choices"][0]["finish_reason"] = "stop".into();
        let mut refused = chunk("", "stop");
        refused["choices"][0]["message"] = json!({"content": null, "refusal": "I'm sorry."});
        for (message, want) in [
            (hidden, Silence::Thought),
            (counted, Silence::Thought),
            (chunk("", "length"), Silence::Thought),
            (chunk("\n", "length"), Silence::Empty),
            (chunk("", "stop"), Silence::Empty),
            (chunk("", "content_filter"), Silence::Refused("its filter lets no answer to this through".to_owned())),
            (refused, Silence::Refused("it says: I'm sorry.".to_owned())),
        ] {
            let mut received = Received::default();
            let text = received.take(&message).expect("no error") + &received.rest();
            assert_eq!(received.silence(&text), want, "{message}");
        }
        // A refusal comes in pieces too.
        let mut received = Received::default();
        for piece in ["I'm ", "sorry."] {
            let _ = received.take(&json!({"choices": [{"delta": {"refusal": piece}}]}));
        }
        assert_eq!(received.silence(""), Silence::Refused("it says: I'm sorry.".to_owned()));
    }

    #[test]
    fn an_answer_that_its_length_or_a_filter_ended_is_cut() {
        for (finish, is_cut) in [("stop", false), ("length", true), ("content_filter", true)] {
            let mut received = Received::default();
            let message = json!({"choices": [{"delta": {"content": "a"}, "finish_reason": finish}]});
            assert_eq!((received.take(&message).as_deref(), received.is_cut()), (Ok("a"), is_cut), "{finish}");
        }
    }

    #[test]
    fn what_servers_leave_out_or_add_does_no_harm() {
        let mut received = Received::default();
        let whole = json!({"object": "x", "choices": [{"message": {"content": [{"type": "text", "text": "Hi"}]}, "finish_reason": "stop"}], "usage": null});
        assert_eq!(received.take(&whole).as_deref(), Ok("Hi"));
        assert_eq!((received.usage, received.finish.as_deref(), received.model.as_deref()), (None, Some("stop"), None));
        assert_eq!(received.take(&json!({"choices": []})).as_deref(), Ok(""));
        assert_eq!(received.take(&json!([1, 2])).as_deref(), Ok(""));
        let thought = json!({"choices": [{"delta": {"content": null, "reasoning_content": "hm"}}]});
        assert_eq!((received.take(&thought).as_deref(), received.has_reasoned), (Ok(""), true));
        let counted = json!({"model": "m", "choices": [], "usage": {"prompt_tokens": 3}});
        assert_eq!(received.take(&counted).as_deref(), Ok(""));
        assert_eq!(received.usage, Some(Usage { prompt_tokens: 3, completion_tokens: 0 }));
        assert_eq!(received.take(&json!({"error": {"message": "no"}})), Err("no".to_owned()));
    }
}
