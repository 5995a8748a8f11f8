//! What a filter says of a key, as a path of SQL/JSON.
use svc_client::wire::{KeyFilter, Scalar};

/// The path that finds something in a document's structured content if the filter holds, or, where it asks that there is nothing, if it does not
/// hold. In PostgreSQL's lax mode a list stands for its entries, and in a comparison an entry that is a list does once more, which its type rules out.
pub(super) fn json_path(key: &KeyFilter) -> String {
    let mut path = "$".to_owned();
    for name in &key.path {
        path.push('.');
        path.push_str(&quoted(name));
    }
    let mut tests = Vec::new();
    if let Some(values) = &key.one_of {
        let values: Vec<String> = values.iter().map(|value| format!("@ == {}", written(value))).collect();
        tests.push(format!("({})", values.join(" || ")));
    }
    for (bound, sign) in [(&key.from, ">="), (&key.until, "<")] {
        if let Some(bound) = bound {
            tests.push(format!("@ {sign} {}", written(bound)));
        }
    }
    match tests.is_empty() {
        true => path,
        false => format!("{path} ? (@.type() != \"array\" && {})", tests.join(" && ")),
    }
}

/// A value as JSON writes it, which a path reads as the same.
fn written(value: &Scalar) -> String {
    match value {
        Scalar::Text(text) => quoted(text),
        Scalar::Number(number) => number.to_string(),
        Scalar::Flag(flag) => flag.to_string(),
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_quotes_all_that_a_caller_wrote() {
        for (filter, path) in [
            (json!({"path": ["a", "b c"], "exists": true}), r#"$."a"."b c""#),
            (json!({"path": ["a\" ? (true)"], "exists": false}), r#"$."a\" ? (true)""#),
            (
                json!({"path": ["a"], "in": ["x\"\\\n", 1, -2.5, true]}),
                r#"$."a" ? (@.type() != "array" && (@ == "x\"\\\n" || @ == 1 || @ == -2.5 || @ == true))"#,
            ),
            (json!({"path": ["a"], "from": 1, "until": 9}), r#"$."a" ? (@.type() != "array" && @ >= 1 && @ < 9)"#),
            (
                json!({"path": ["a"], "in": ["ä"], "until": "b"}),
                r#"$."a" ? (@.type() != "array" && (@ == "ä") && @ < "b")"#,
            ),
        ] {
            assert_eq!(json_path(&serde_json::from_value(filter).unwrap()), path);
        }
    }
}
