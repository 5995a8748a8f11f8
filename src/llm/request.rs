//! What is sent to an endpoint. Servers differ in the fields that they know, so a field that one refuses is left out from then on.
use rand::RngExt;
use serde_json::{Map, Value, json};

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

/// The fields that not every server knows, each with the bit that says that this one refused it.
const OPTIONAL: [(&str, u8); 6] = [
    ("response_format", 1),
    ("stream_options", 1 << 1),
    ("chat_template_kwargs", 1 << 2),
    ("reasoning_effort", 1 << 3),
    ("temperature", 1 << 4),
    ("max_tokens", 1 << 5),
];
/// The bit that says that this server takes no schema for an answer. It may still promise an object.
const SCHEMA: u8 = 1 << 6;
/// The names of the field and of its form with a schema.
const FORMAT: [&str; 2] = ["response_format", "json_schema"];

/// The body of a call without what was refused.
pub fn body(ask: &Ask, model: &str, thinks: bool, refused: u8) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("stream".to_owned(), true.into());
    let messages = json!([
        {"role": "system", "content": ask.instructions},
        {"role": "user", "content": ask.message},
    ]);
    body.insert("messages".to_owned(), messages);
    let mut add = |name: &str, value: Value| {
        let bit = OPTIONAL.iter().find(|(known, _)| *known == name).map_or(0, |(_, bit)| *bit);
        if refused & bit == 0 {
            body.insert(name.to_owned(), value);
        }
    };
    add("stream_options", json!({"include_usage": true}));
    add("temperature", ask.temperature.into());
    add("max_tokens", ask.max_tokens.into());
    if let Some(schema) = &ask.schema {
        let schema = json!({"name": "answer", "strict": true, "schema": schema});
        add(
            FORMAT[0],
            match refused & SCHEMA {
                0 => json!({"type": "json_schema", "json_schema": schema}),
                _ => json!({"type": "json_object"}),
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
pub fn body_without_stream(ask: &Ask, model: &str, refused: u8) -> Value {
    let mut body = body(ask, model, ask.thinks, refused);
    if let Some(body) = body.as_object_mut() {
        body.remove("stream");
        body.remove("stream_options");
    }
    body
}

/// The bit of an optional field that the text of a refusal names, after these were refused before.
pub fn refused_field_of(text: &str, refused: u8) -> Option<u8> {
    if refused & SCHEMA == 0 && FORMAT.iter().any(|name| text.contains(name)) {
        return Some(SCHEMA);
    }
    OPTIONAL.iter().find(|(name, _)| text.contains(name)).map(|(_, bit)| *bit)
}

/// The bit of a field that was sent and that the text of a refusal names.
pub fn refused_field(body: &Value, text: &str) -> Option<u8> {
    if FORMAT.iter().any(|name| text.contains(name)) && body["response_format"]["type"] == "json_schema" {
        return Some(SCHEMA);
    }
    OPTIONAL.iter().find(|(name, _)| body.get(*name).is_some() && text.contains(name)).map(|(_, bit)| *bit)
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

    #[test]
    fn a_refused_field_is_left_out_and_the_old_name_gives_way_to_the_new() {
        let first = body(&ask(), "m", false, 0);
        for name in ["stream_options", "chat_template_kwargs", "reasoning_effort", "temperature"] {
            assert!(first.get(name).is_some(), "{name}");
            let bit =
                refused_field(&first, &format!("Unrecognized request argument supplied: {name}")).expect("a field");
            assert_eq!(body(&ask(), "m", false, bit).get(name), None, "{name}");
        }
        // A schema gives way to an object, and that to words alone.
        for text in ["unknown field response_format", "json_schema is not supported"] {
            let schema = refused_field(&first, text).expect("a field");
            let second = body(&ask(), "m", false, schema);
            assert_eq!(second["response_format"], json!({"type": "json_object"}));
            assert_eq!(refused_field_of(text, 0), Some(schema));
            let text = "unknown field response_format";
            let object = refused_field(&second, text).expect("a field");
            assert_eq!(body(&ask(), "m", false, schema | object).get("response_format"), None);
            assert_eq!(refused_field_of(text, schema), Some(object));
        }
        let text = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.";
        let bit = refused_field(&first, text).expect("a field");
        let second = body(&ask(), "m", false, bit);
        assert_eq!((second.get("max_tokens"), &second["max_completion_tokens"]), (None, &json!(9)));
        assert_eq!(refused_field(&second, text), None, "it is not sent, so nothing is gained by another call");
        assert_eq!(refused_field(&first, "the context is too long"), None);
        assert_eq!(body(&ask(), "m", true, 0).get("reasoning_effort"), None);
    }
}
