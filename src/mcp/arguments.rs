//! The arguments of a tool as the parts of a request.
use super::window;
use rmcp::model::JsonObject;
use serde_json::{Map, Number, Value};
use svc_client::{Failure, Untyped, UntypedBody};

/// The longest argument that becomes a part of an address; the service's longest cursor has 5,200.
const ADDRESS_BYTES: usize = 5_300;
/// Up to here a float holds every whole number exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Where each argument of a tool goes.
#[derive(Default)]
pub struct Places {
    pub path: Vec<String>,
    pub query: Vec<String>,
    /// The fields of the body, if there is one.
    pub body: Option<Vec<String>>,
}

/// The arguments of a call, and where in its answer the page begins that is asked for.
pub struct Asked {
    pub arguments: JsonObject,
    pub from: Vec<Value>,
    /// The cursor of the service's own page.
    pub cursor: Option<String>,
}

impl Asked {
    /// Reads `cursor`, if a tool takes one.
    pub fn read(mut arguments: JsonObject, is_paged: bool) -> Result<Asked, Failure> {
        let (mut from, mut cursor) = (Vec::new(), None);
        if is_paged {
            match arguments.remove("cursor") {
                None | Some(Value::Null) => {}
                Some(Value::String(text)) => (from, cursor) = window::read_cursor(&text)?,
                Some(_) => return Err(Failure::field("cursor", "takes a text")),
            }
        }
        Ok(Asked { arguments, from, cursor })
    }
}

impl Places {
    /// A request with these arguments. The service judges them, except those that it would not be shown.
    pub fn fill(&self, mut arguments: JsonObject) -> Result<Untyped, Failure> {
        let mut path = Map::new();
        for name in &self.path {
            let value = arguments.remove(name).filter(|value| !value.is_null());
            let value = value.ok_or_else(|| Failure::field(name, "must be given"))?;
            path.insert(name.clone(), text(name, value)?.into());
        }
        let mut query = Vec::new();
        for name in &self.query {
            // A parameter that a client knows nothing for is often sent as null.
            match arguments.remove(name) {
                None | Some(Value::Null) => {}
                Some(value) => query.push((name.clone(), text(name, value)?)),
            }
        }
        let body = match &self.body {
            Some(_) => UntypedBody::Json(Value::Object(arguments)),
            None => {
                if let Some(name) = arguments.keys().next() {
                    let known: Vec<_> = self.path.iter().chain(&self.query).map(|name| format!("`{name}`")).collect();
                    return Err(Failure::field(name, "is not known")
                        .with("remedy", format!("the tool takes {}", known.join(", "))));
                }
                UntypedBody::Nothing
            }
        };
        Ok(Untyped { path, query, body })
    }
}

/// A whole number that is written as another one. JSON Schema knows one kind of numbers, and clients that keep all of them as doubles write `7.0`.
fn whole(number: &Number) -> Option<String> {
    let value = number.as_f64().filter(|value| number.is_f64() && value.fract() == 0.0 && value.abs() <= EXACT)?;
    Some((value as i64).to_string())
}

/// An argument as a part of an address, which is of limited length.
fn text(name: &str, value: Value) -> Result<String, Failure> {
    let text = match value {
        Value::String(text) => text,
        Value::Number(number) => whole(&number).unwrap_or_else(|| number.to_string()),
        other => other.to_string(),
    };
    if text.len() > ADDRESS_BYTES {
        return Err(Failure::field(name, format!("takes at most {ADDRESS_BYTES} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(value: Value) -> JsonObject {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn each_argument_goes_where_the_operation_takes_it() {
        let places = Places { path: vec!["id".into()], query: vec!["limit".into(), "wait".into()], body: None };
        let call = places.fill(of(json!({"id": 7, "limit": 2, "wait": null}))).expect("known");
        assert_eq!((&call.path["id"], call.query), (&json!("7"), vec![("limit".to_owned(), "2".to_owned())]));
        for (arguments, field) in
            [(json!({}), "id"), (json!({"id": null}), "id"), (json!({"id": 7, "colour": 1}), "colour")]
        {
            let failure = places.fill(of(arguments)).err().expect("refused");
            assert_eq!((failure.status, &failure.members["field"]), (422, &field.into()));
        }
        let places = Places { body: Some(vec!["query".into()]), ..places };
        let call = places.fill(of(json!({"id": 7, "wait": true, "colour": 1}))).expect("the service judges a body");
        let UntypedBody::Json(body) = call.body else { panic!("no body") };
        assert_eq!(body, json!({"colour": 1}));
    }

    #[test]
    fn a_whole_number_is_one_however_a_client_writes_it() {
        for (value, expected) in [
            (json!(7.0), "7"),
            (json!(-2.0), "-2"),
            (json!(1e3), "1000"),
            (json!(7), "7"),
            (json!(u64::MAX), "18446744073709551615"),
            (json!(7.5), "7.5"),
            (json!("7.0"), "7.0"),
        ] {
            assert_eq!(text("id", value.clone()).expect("short"), expected, "{value}");
        }
    }
}
