//! What is sent to an endpoint. Servers differ in the fields that they know, so a field that one refuses is left out from then on.
use rand::RngExt;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// What a language model is asked.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What it is for, a word for metrics.
    pub purpose: &'static str,
    pub instructions: String,
    pub message: String,
    /// The most tokens of the answer.
    pub max_tokens: u32,
    /// How freely the model chooses its words; 0 for the likeliest ones.
    pub temperature: f64,
    /// The JSON schema of the answer; plain text without one.
    pub schema: Option<Value>,
    /// The model, if it is another one than that of the settings.
    pub model: Option<String>,
    /// Whether the model may reason before it answers.
    pub thinks: bool,
}

/// A line between which a text of others stands in a message. No text can guess it and pretend to end.
pub fn mark() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}

/// The fields that not every server knows.
const OPTIONAL: [&str; 6] =
    [FORMAT, "stream_options", "chat_template_kwargs", "reasoning_effort", TEMPERATURE, "max_tokens"];
/// The field that says of which form an answer is.
const FORMAT: &str = "response_format";
/// That field with a schema. A server that refuses it may still promise an object.
const SCHEMA: &str = "json_schema";
pub const TEMPERATURE: &str = "temperature";

/// The names of the optional fields that a server has refused for a model.
pub type Refused = BTreeSet<String>;

/// The body of a call without what was refused.
pub fn body(ask: &Ask, model: &str, thinks: bool, refused: &Refused) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("stream".to_owned(), true.into());
    let messages = json!([
        {"role": "system", "content": ask.instructions},
        {"role": "user", "content": ask.message},
    ]);
    body.insert("messages".to_owned(), messages);
    let mut add = |name: &str, value: Value| {
        if !refused.contains(name) {
            body.insert(name.to_owned(), value);
        }
    };
    add("stream_options", json!({"include_usage": true}));
    add(TEMPERATURE, ask.temperature.into());
    add("max_tokens", ask.max_tokens.into());
    if let Some(schema) = &ask.schema {
        let schema = json!({"name": "answer", "strict": true, "schema": schema});
        add(
            FORMAT,
            match refused.contains(SCHEMA) {
                false => json!({"type": SCHEMA, SCHEMA: schema}),
                true => json!({"type": "json_object"}),
            },
        );
    }
    if !thinks {
        add("chat_template_kwargs", json!({"enable_thinking": false}));
        add("reasoning_effort", "none".into());
    }
    if !body.contains_key("max_tokens") {
        // The newer name of the same field.
        body.insert("max_completion_tokens".to_owned(), ask.max_tokens.into());
    }
    Value::Object(body)
}

/// The body of a request whose answer comes in one piece.
pub fn body_without_stream(ask: &Ask, model: &str, refused: &Refused) -> Value {
    let mut body = body(ask, model, ask.thinks, refused);
    if let Some(body) = body.as_object_mut() {
        body.remove("stream");
        body.remove("stream_options");
    }
    body
}

/// The optional fields that the text of a refusal names. The first one that was sent is the one that is refused: a schema gives way to an object first.
pub fn fields_in(text: &str) -> impl Iterator<Item = &'static str> {
    let schema = (text.contains(FORMAT) || text.contains(SCHEMA)).then_some(SCHEMA);
    schema.into_iter().chain(OPTIONAL.into_iter().filter(move |name| text.contains(name)))
}

/// The field that was sent and that the text of a refusal names.
pub fn refused_field(body: &Value, text: &str) -> Option<&'static str> {
    fields_in(text).find(|field| match *field {
        SCHEMA => body[FORMAT].get(SCHEMA).is_some(),
        field => body.get(field).is_some(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask() -> Ask {
        let schema = Some(json!({"type": "object"}));
        Ask {
            purpose: "test",
            instructions: "i".into(),
            message: "m".into(),
            max_tokens: 9,
            temperature: 0.0,
            schema,
            model: None,
            thinks: true,
        }
    }

    fn refused(fields: &[&str]) -> Refused {
        fields.iter().map(|field| (*field).to_owned()).collect()
    }

    #[test]
    fn a_refused_field_is_left_out_and_the_old_name_gives_way_to_the_new() {
        let first = body(&ask(), "m", false, &Refused::new());
        for name in ["stream_options", "chat_template_kwargs", "reasoning_effort", "temperature"] {
            assert!(first.get(name).is_some(), "{name}");
            let field =
                refused_field(&first, &format!("Unrecognized request argument supplied: {name}")).expect("a field");
            assert_eq!(body(&ask(), "m", false, &refused(&[field])).get(name), None, "{name}");
        }
        // A schema gives way to an object, and that to words alone.
        for text in ["unknown field response_format", "json_schema is not supported"] {
            let schema = refused_field(&first, text).expect("a field");
            let second = body(&ask(), "m", false, &refused(&[schema]));
            assert_eq!(second["response_format"], json!({"type": "json_object"}));
            let object = refused_field(&second, "unknown field response_format").expect("a field");
            assert_eq!(body(&ask(), "m", false, &refused(&[schema, object])).get("response_format"), None);
        }
        let text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        let field = refused_field(&first, text).expect("a field");
        let second = body(&ask(), "m", false, &refused(&[field]));
        assert_eq!((second.get("max_tokens"), &second["max_completion_tokens"]), (None, &json!(9)));
        assert_eq!(refused_field(&second, text), None, "it is not sent, so nothing is gained by another call");
        assert_eq!(refused_field(&first, "the context is too long"), None);
        assert_eq!(body(&ask(), "m", true, &Refused::new()).get("reasoning_effort"), None);
    }
}
