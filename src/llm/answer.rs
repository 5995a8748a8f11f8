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
    pub has_reasoned: bool,
    thoughts: Thoughts,
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
        let text = self.thoughts.without(&text(&said["content"]));
        self.has_reasoned |= reasons || self.thoughts.were_any();
        Ok(text)
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
