//! Where a stretch of siblings comes from.
use serde_json::{Map, Value, json};
use svc_formats::xlsx::{Range, Reference};

/// The anchor of a stretch, from the anchors of its first and its last node: what both have, from the one to the other. It has no boxes,
/// because those of the nodes between them would be missing.
pub fn span(first: &Value, last: &Value) -> Value {
    let (Some(first), Some(last)) = (first.as_object(), last.as_object()) else { return json!({}) };
    let joined = first.iter().filter(|(name, _)| *name != "boxes").filter_map(|(name, from)| {
        let to = last.get(name)?;
        let joined = match (from, to) {
            (Value::Array(from), Value::Array(to)) => json!([from.first()?, to.last()?]),
            (Value::String(from), Value::String(to)) if name == "cells" => cells(from, to)?.into(),
            (from, to) if from == to => from.clone(),
            _ => return None,
        };
        Some((name.clone(), joined))
    });
    Value::Object(joined.collect::<Map<_, _>>())
}

/// The smallest range that holds both, which must be of one sheet.
fn cells(from: &str, to: &str) -> Option<String> {
    let (from, to): (Reference, Reference) = (from.parse().ok()?, to.parse().ok()?);
    let range = Range::new(from.range.first(), to.range.last());
    (from.sheet == to.sheet).then(|| Reference { sheet: from.sheet, range }.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_reaches_from_its_first_node_to_its_last() {
        let text = |from, to, page| json!({"characters": [from, to], "pages": [page, page]});
        assert_eq!(span(&text(0, 90, 1), &text(400, 520, 3)), json!({"characters": [0, 520], "pages": [1, 3]}));
        let mut scanned = text(0, 90, 1);
        scanned["boxes"] = json!([{"page": 1, "left": 72.0, "top": 30.5, "width": 100.0, "height": 12.0}]);
        assert_eq!(span(&scanned, &scanned), text(0, 90, 1));
        let row = |cells| json!({"cells": cells, "hidden": true});
        let shown = span(&json!({"cells": "'A b'!A2:C2"}), &row("'A b'!A9:C9"));
        assert_eq!(shown, json!({"cells": "'A b'!A2:C9"}));
        assert_eq!(span(&row("X!A2:C2"), &row("Y!A9:C9")), json!({"hidden": true}));
        assert_eq!(span(&Value::Null, &text(0, 1, 1)), json!({}));
    }
}
