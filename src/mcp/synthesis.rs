//! The tool `synthesize`. Its answer is one page: for another one a language model would be asked again, and might say something else.
use super::window::{MOST, size};
use serde_json::{Value, json};

pub const NAME: &str = "synthesize";

/// An answer for which there is room. Of one that is too long, what the search found has no texts, which `read_document` shows, and if need be
/// the worst of it is left out.
pub fn shortened(mut answer: Value) -> Value {
    if size(&answer) <= MOST {
        return answer;
    }
    for result in results(&mut answer).into_iter().flatten() {
        without_texts(result);
        result.get_mut("hits").and_then(Value::as_array_mut).into_iter().flatten().for_each(without_texts);
    }
    while size(&answer) > MOST && results(&mut answer).is_some_and(|found| found.pop().is_some()) {}
    answer
}

fn results(answer: &mut Value) -> Option<&mut Vec<Value>> {
    answer.get_mut("results")?.as_array_mut()
}

/// Takes the texts of a document away, and says so as the service does.
fn without_texts(document: &mut Value) {
    let Some(members) = document.as_object_mut() else { return };
    let mut omitted = members.get("omitted").and_then(Value::as_array).cloned().unwrap_or_default();
    for (name, none) in [("content", json!("")), ("structured_content", json!({}))] {
        if members.get(name).is_some_and(|text| *text != none) {
            members.insert(name.to_owned(), none);
            omitted.push(name.into());
        }
    }
    if !omitted.is_empty() {
        members.insert("omitted".to_owned(), omitted.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_too_long_has_its_sentences_and_the_best_of_what_was_found() {
        let found = |id: usize, title: usize| {
            let hit = json!({"id": id, "content": "x".repeat(2_000), "structured_content": {}});
            json!({"id": id, "title": "t".repeat(title), "content": "x".repeat(2_000), "structured_content": {"a": 1}, "hits": [hit]})
        };
        let answer = |title: usize| {
            let results: Vec<Value> = (0..100).map(|id| found(id, title)).collect();
            shortened(json!({"answer": "They wait [1].", "sentences": [{"text": "They wait."}], "results": results}))
        };
        let all = answer(10);
        assert_eq!((all["answer"].as_str(), all["results"].as_array().unwrap().len()), (Some("They wait [1]."), 100));
        let last = &all["results"][99];
        assert_eq!((&last["content"], &last["omitted"]), (&json!(""), &json!(["content", "structured_content"])));
        assert_eq!(last["hits"][0]["omitted"], json!(["content"]));
        let some = answer(1_000);
        let kept = some["results"].as_array().unwrap().len();
        assert!(size(&some) <= MOST && (40..100).contains(&kept), "{kept}");
        assert_eq!((&some["results"][0]["id"], &some["answer"]), (&json!(0), &all["answer"]));
    }
}
