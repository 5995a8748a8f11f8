//! Ingest options: the defaults, overridden by the caller. Every group is valid for every format.
mod groups;

pub use groups::{OptionGroup, OptionKey, Preset, complete};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use svc_client::{
    Code, Failure,
    constraint::{Constraint, Form},
};
use svc_formats::{ChunkOptions, Secret};

/// All options, resolved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Options {
    pub structure: Structure,
    pub rollup: Rollup,
    pub profile: Profile,
    pub embed: Embed,
    pub skip: Skip,
    /// The groups of registered task types.
    #[serde(flatten)]
    registered: Map<String, Value>,
}

/// Used by both structure tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Structure {
    /// `sentence_packed`.
    pub chunk_strategy: String,
    /// How many tokens a chunk is filled up to; 8 to 8,192.
    pub max_tokens: usize,
    /// A length in characters, 0 to 1,000; a shorter chunk joins its neighbour.
    pub min_chunk_length: usize,
}

/// Used when containers settle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rollup {
    /// A node with more children is segmented instead of summarized; 2 to 100,000.
    pub max_children: usize,
    /// The penalty of the changepoint segmentation; above 0.
    pub penalty: f64,
    /// The fewest children of a segment; 1 to 1,000.
    pub min_segment: usize,
    /// If empty, SVC_LLM_MODEL is used.
    pub llm_model: String,
}

/// Used by the tasks that read a sheet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// Whether the profile says what values the columns have.
    pub sketch_columns: bool,
    /// Whether tables are looked for below the first row, and what is in none becomes chunks.
    pub tables: bool,
}

/// Options of the tasks that embed the leaves of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Embed {
    /// The leaves get token vectors too, whatever indexes there are. `store/token_vectors.rs` reads this where the options are stored.
    pub tokens: bool,
}

/// The tasks that are left out of the file, which says so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Skip {
    /// Scanned pages are not read, which takes long.
    pub ocr: bool,
    /// Pictures are not taken out of the file.
    pub images: bool,
    /// Tables get no nodes of their own, and chunks hold what they say.
    pub tables: bool,
}

impl Default for Structure {
    fn default() -> Self {
        let ChunkOptions { max_tokens, min_chunk_length, .. } = ChunkOptions::default();
        Structure { chunk_strategy: "sentence_packed".to_owned(), max_tokens, min_chunk_length }
    }
}
impl Default for Rollup {
    fn default() -> Self {
        Rollup { max_children: 16, penalty: 1.0, min_segment: 3, llm_model: String::new() }
    }
}
impl Default for Profile {
    fn default() -> Self {
        Profile { sketch_columns: true, tables: true }
    }
}

/// What a caller asks for: options that are stored, and what must never be stored.
pub struct Requested {
    pub options: Options,
    /// `extract.password`, kept until the file is read, and neither stored nor shown.
    pub password: Option<Secret>,
}

/// The groups of [`Skip`] and [`Embed`], which older files lack.
const SKIP: &str = "skip";
const EMBED: &str = "embed";
/// The group that is not stored.
const EXTRACT: &str = "extract";
/// The key of that group.
const PASSWORD: &str = "password";
/// The most characters of a password; the formats' own limits are far below.
const PASSWORD_CHARACTERS: usize = 1024;
/// The most characters of a model's name.
const MODEL_CHARACTERS: usize = 255;

impl Requested {
    /// Reads what a caller sent, for upload, explain and analyze alike. No error repeats a password.
    pub fn read(overrides: Option<Value>, registered: &[&OptionGroup]) -> Result<Requested, Failure> {
        let mut overrides = overrides.unwrap_or_default();
        let extract = overrides.as_object_mut().and_then(|groups| groups.remove(EXTRACT));
        Ok(Requested { options: Options::resolve(Some(&overrides), registered)?, password: password(extract)? })
    }
}

fn password(group: Option<Value>) -> Result<Option<Secret>, Failure> {
    let keys = match group {
        None => return Ok(None),
        Some(Value::Object(keys)) => keys,
        Some(_) => return Err(Failure::field(EXTRACT, "must be a JSON object")),
    };
    let mut password = None;
    for (key, value) in keys {
        let name = format!("{EXTRACT}.{key}");
        if key != PASSWORD {
            return Err(unknown(&name, &[PASSWORD.to_owned()]));
        }
        password = match value {
            Value::Null => None,
            Value::String(text) if (1..=PASSWORD_CHARACTERS).contains(&text.chars().count()) => {
                check_text(&name, &text)?;
                Some(Secret::new(text))
            }
            _ => return Err(Failure::field(&name, format!("takes a text of 1 to {PASSWORD_CHARACTERS} characters"))),
        };
    }
    Ok(password)
}

/// Neither PostgreSQL nor the environment of the reader's process can hold a NUL.
fn check_text(name: &str, text: &str) -> Result<(), Failure> {
    if text.contains('\0') { Err(Failure::field(name, "must not contain a NUL character")) } else { Ok(()) }
}

impl Options {
    /// Resolves everything that is stored.
    fn resolve(overrides: Option<&Value>, registered: &[&OptionGroup]) -> Result<Options, Failure> {
        let mut resolved = Options::default().to_value();
        complete(&mut resolved, registered);
        match overrides {
            None | Some(Value::Null) => {}
            Some(Value::Object(groups)) => {
                for (group, keys) in groups {
                    override_group(&mut resolved, group, keys, registered)?;
                }
            }
            Some(_) => return Err(Failure::field("options", "must be a JSON object of groups")),
        }
        serde_path_to_error::deserialize(resolved)
            .map_err(|error| Failure::field(&error.path().to_string(), error.inner()))
    }

    /// The form that is stored beside the bytes and compared with that of a later upload.
    pub fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Whether these options ingest a file as the `stored` ones did. Stored groups that nobody registers any more do not
    /// count, nor do keys that are younger than the stored ones; a group that is younger had its defaults.
    pub fn agree_with(&self, stored: &Value, registered: &[&OptionGroup]) -> bool {
        let (asked, mut stored) = (self.to_value(), stored.clone());
        complete(&mut stored, registered);
        if let Some(stored) = stored.as_object_mut() {
            stored.entry(SKIP).or_insert_with(|| json!(Skip::default()));
            stored.entry(EMBED).or_insert_with(|| json!(Embed::default()));
        }
        let agrees = |group: &Value, stored: &Value| match (group.as_object(), stored.as_object()) {
            (Some(group), Some(stored)) => {
                group.iter().all(|(key, value)| stored.get(key).is_none_or(|of| of == value))
            }
            _ => false,
        };
        let mut groups = asked.as_object().into_iter().flatten();
        groups.all(|(name, group)| stored.get(name).is_some_and(|stored| agrees(group, stored)))
    }
}

/// What options take beyond their types.
const CONSTRAINTS: &[(&str, Constraint)] = &[
    ("structure.chunk_strategy", Constraint::OneOf(&["sentence_packed"])),
    ("structure.max_tokens", Constraint::Whole(8, 8192)),
    ("structure.min_chunk_length", Constraint::Whole(0, 1000)),
    ("rollup.max_children", Constraint::Whole(2, 100_000)),
    ("rollup.penalty", Constraint::Above(0.0)),
    ("rollup.min_segment", Constraint::Whole(1, 1000)),
    ("rollup.llm_model", Constraint::Text(0, MODEL_CHARACTERS, Form::Any)),
];

/// What a key takes beyond its type.
fn constraint(group: &str, key: &str, registered: &[&OptionGroup]) -> Option<Constraint> {
    let name = format!("{group}.{key}");
    let built_in = CONSTRAINTS.iter().find(|(constrained, _)| *constrained == name).map(|(_, constraint)| *constraint);
    let keys = registered.iter().filter(|known| known.name == group).flat_map(|known| known.keys);
    built_in.or_else(|| keys.filter(|known| known.name == key).find_map(|known| known.constraint))
}

/// The options as the contract shows them: the defaults, their types, and what they take.
pub fn schema(registered: &[&OptionGroup]) -> Value {
    let group = |group: &str, keys: &Value| {
        let key = |(key, default): (&String, &Value)| {
            let kind = match default {
                Value::Bool(_) => "boolean",
                Value::Number(number) if number.is_f64() => "number",
                Value::Number(_) => "integer",
                _ => "string",
            };
            let mut schema =
                Map::from_iter([("type".to_owned(), kind.into()), ("default".to_owned(), default.clone())]);
            let constraint = constraint(group, key, registered);
            schema.extend(constraint.map(|constraint| constraint.keywords()).unwrap_or_default());
            (key.clone(), Value::Object(schema))
        };
        let keys: Map<String, Value> = keys.as_object().into_iter().flatten().map(key).collect();
        json!({"type": "object", "properties": keys, "additionalProperties": false})
    };
    let mut defaults = Options::default().to_value();
    complete(&mut defaults, registered);
    let mut groups: Map<String, Value> =
        defaults.as_object().into_iter().flatten().map(|(name, keys)| (name.clone(), group(name, keys))).collect();
    let password = json!({
        "type": ["string", "null"], "format": "password", "minLength": 1, "maxLength": PASSWORD_CHARACTERS,
        "description": "Opens an encrypted file. It is stored nowhere.",
    });
    groups.insert(
        EXTRACT.to_owned(),
        json!({"type": "object", "properties": {PASSWORD: password}, "additionalProperties": false}),
    );
    json!({
        "type": ["object", "null"], "properties": groups, "additionalProperties": false,
        "description": "Ingest options by group; an absent one keeps its default.",
    })
}

/// Converts a value to the type of the option's default, which is how it is stored. A value of another type, or one that the
/// constraint forbids, is refused by the option's name.
fn checked(name: &str, default: &Value, constraint: Option<Constraint>, value: &Value) -> Result<Value, Failure> {
    let (value, takes) = match default {
        Value::Bool(_) => (value.as_bool().map(Value::from), "true or false"),
        Value::Number(number) if number.is_f64() => (value.as_f64().map(Value::from), "a number"),
        Value::Number(_) => (whole(value).map(Value::from), "a whole number"),
        _ => (value.as_str().map(Value::from), "a text"),
    };
    let value = match (value, constraint) {
        (Some(value), _) => value,
        (None, Some(Constraint::Whole(least, most))) => {
            return Err(Failure::field(name, format!("takes a whole number from {least} to {most}")));
        }
        (None, _) => return Err(Failure::field(name, format!("takes {takes}"))),
    };
    if let Some(text) = value.as_str() {
        check_text(name, text)?;
    }
    constraint.map_or(Ok(()), |constraint| constraint.check(name, &value))?;
    Ok(value)
}

/// A whole number of JSON, which may be written with a fraction of zero.
fn whole(value: &Value) -> Option<i64> {
    // Beyond this, a double does not hold every whole number.
    const MOST: f64 = (1i64 << 53) as f64;
    let fraction = || value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() <= MOST);
    value.as_i64().or_else(|| fraction().map(|number| number as i64))
}

fn override_group(resolved: &mut Value, group: &str, keys: &Value, registered: &[&OptionGroup]) -> Result<(), Failure> {
    let mut known: Vec<String> =
        resolved.as_object().map(|groups| groups.keys().cloned().collect()).unwrap_or_default();
    known.push(EXTRACT.to_owned());
    let Some(target) = resolved.get_mut(group).and_then(Value::as_object_mut) else {
        return Err(unknown(group, &known));
    };
    let Value::Object(keys) = keys else {
        return Err(Failure::field(group, "must be a JSON object"));
    };
    for (key, value) in keys {
        let name = format!("{group}.{key}");
        let Some(default) = target.get(key) else {
            return Err(unknown(&name, &target.keys().cloned().collect::<Vec<_>>()));
        };
        let value = checked(&name, default, constraint(group, key, registered), value)?;
        target.insert(key.clone(), value);
    }
    Ok(())
}

fn unknown(key: &str, known: &[String]) -> Failure {
    Failure::new(
        Code::UnknownOption,
        format!("the option `{key}` is not known; the known ones are: {}", known.join(", ")),
    )
    .with("key", key)
}

/// Refuses the same bytes with other options, naming both sets.
pub fn stored_with_others(document_id: i64, stored: &Value, asked: &Value) -> Failure {
    let mut members = Map::new();
    members.insert("document_id".to_owned(), document_id.into());
    members.insert("stored_options".to_owned(), stored.clone());
    members.insert("requested_options".to_owned(), asked.clone());
    let remedy = format!(
        "to ingest the stored bytes with these options, send them to POST /ingest/file/{document_id}/reprocess"
    );
    members.insert("remedy".to_owned(), remedy.into());
    let mut failure = Failure::new(
        Code::StoredWithOtherOptions,
        format!("document {document_id} holds the same bytes, ingested with {stored}; this upload asks for {asked}"),
    );
    failure.members = members;
    failure
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_the_contract() {
        let options = Options::resolve(None, &[]).expect("defaults");
        insta::assert_json_snapshot!(options.to_value());
    }

    #[test]
    fn options_that_are_younger_than_a_file_are_not_held_against_it() {
        let asked = |overrides: Value| Options::resolve(Some(&overrides), &[]).expect("valid");
        let mut stored = Options::default().to_value();
        stored["profile"] = json!({"sketch_columns": true});
        assert!(asked(json!({})).agree_with(&stored, &[]));
        assert!(!asked(json!({"profile": {"sketch_columns": false}})).agree_with(&stored, &[]));
        let other = json!({"profile": {"tables": false}});
        assert!(!asked(other).agree_with(&Options::default().to_value(), &[]));
        for younger in ["skip", "embed"] {
            stored.as_object_mut().expect("groups").remove(younger);
        }
        assert!(asked(json!({})).agree_with(&stored, &[]));
        let tokens = json!({"embed": {"tokens": true}});
        assert!(!asked(tokens).agree_with(&stored, &[]), "a file was embedded before it could be asked for them");
        let unread = json!({"skip": {"ocr": true}});
        assert!(!asked(unread).agree_with(&stored, &[]), "a file was read before it could be asked not to");
        stored.as_object_mut().expect("groups").remove("rollup");
        assert!(!asked(json!({})).agree_with(&stored, &[]), "a group that is missing is no younger key");
    }

    #[test]
    fn overrides_replace_single_keys_and_order_does_not_matter() {
        let one = Options::resolve(Some(&json!({"structure": {"max_tokens": 60}, "rollup": {"penalty": 2}})), &[])
            .expect("valid");
        let other = Options::resolve(Some(&json!({"rollup": {"penalty": 2.0}, "structure": {"max_tokens": 60}})), &[])
            .expect("valid");
        assert_eq!((one.structure.max_tokens, one.structure.min_chunk_length), (60, 20));
        assert_eq!(one.to_value(), other.to_value());
        let float = Options::resolve(Some(&json!({"structure": {"max_tokens": 60.0}})), &[]).expect("a whole number");
        assert_eq!(float.structure.max_tokens, 60);
    }

    #[test]
    fn a_password_is_taken_out_and_never_repeated() {
        let requested =
            Requested::read(Some(json!({"extract": {"password": "hunter2"}, "structure": {"max_tokens": 60}})), &[])
                .expect("valid");
        assert_eq!(requested.password, Some(Secret::new("hunter2")));
        assert!(!requested.options.to_value().to_string().contains("hunter2"));
        assert_eq!(requested.options.structure.max_tokens, 60);
        for none in [None, Some(json!(null)), Some(json!({})), Some(json!({"extract": {"password": null}}))] {
            assert!(Requested::read(none, &[]).expect("valid").password.is_none());
        }
        for (wrong, code) in [
            (json!({"extract": {"password": ["hunter2"]}}), Code::InvalidField),
            (json!({"extract": {"password": ""}}), Code::InvalidField),
            (json!({"extract": {"password": "hunter2".repeat(200)}}), Code::InvalidField),
            (json!({"extract": {"password": "hunter2\0"}}), Code::InvalidField),
            (json!({"extract": "hunter2"}), Code::InvalidField),
            (json!({"extract": {"passwort": "hunter2"}}), Code::UnknownOption),
        ] {
            let failure = Requested::read(Some(wrong), &[]).err().expect("refused");
            let text = serde_json::to_string(&failure).expect("a failure");
            assert!(failure.code == code && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn a_value_of_another_type_is_refused_by_the_name_of_its_option() {
        for (wrong, field, takes) in [
            (json!({"structure": {"max_tokens": "5"}}), "structure.max_tokens", "takes a whole number from 8 to 8192"),
            (json!({"structure": {"max_tokens": null}}), "structure.max_tokens", "takes a whole number from 8 to 8192"),
            (json!({"structure": {"max_tokens": 8.5}}), "structure.max_tokens", "takes a whole number from 8 to 8192"),
            (
                json!({"structure": {"max_tokens": 1e300}}),
                "structure.max_tokens",
                "takes a whole number from 8 to 8192",
            ),
            (json!({"structure": {"max_tokens": -1}}), "structure.max_tokens", "takes 8 to 8192"),
            (json!({"rollup": {"penalty": "x"}}), "rollup.penalty", "takes a number"),
            (json!({"rollup": {"llm_model": 5}}), "rollup.llm_model", "takes a text"),
            (json!({"profile": {"sketch_columns": "x"}}), "profile.sketch_columns", "takes true or false"),
            (json!({"embed": {"tokens": 1}}), "embed.tokens", "takes true or false"),
        ] {
            let failure = Options::resolve(Some(&wrong), &[]).expect_err("must be refused");
            assert_eq!(failure.members["field"], field, "{wrong}");
            assert_eq!(failure.detail, format!("{field}: {takes}"), "{wrong}");
        }
        let options =
            Options::resolve(Some(&json!({"structure": {"max_tokens": 60.0}})), &[]).expect("60 as JSON may write it");
        assert_eq!(options.structure.max_tokens, 60);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let code_and_text =
            |value| Options::resolve(Some(&value), &[]).map_err(|f| (f.code, f.detail)).expect_err("must be refused");
        let (code, text) = code_and_text(json!({"structure": {"max_token": 60}}));
        assert_eq!(code, Code::UnknownOption);
        assert!(text.contains("structure.max_token") && text.contains("max_tokens"), "{text}");
        assert_eq!(code_and_text(json!({"scan": {}})).0, Code::UnknownOption);
        let (_, text) = code_and_text(json!({"structure": {"max_tokens": 60.5}}));
        assert!(text.starts_with("structure.max_tokens: "), "{text}");
        for wrong in [
            json!([]),
            json!({"structure": 3}),
            json!({"structure": {"max_tokens": 0}}),
            json!({"structure": {"chunk_strategy": "semantic"}}),
            json!({"rollup": {"penalty": -1}}),
            json!({"rollup": {"llm_model": "a\0b"}}),
            json!({"rollup": {"llm_model": "m".repeat(256)}}),
        ] {
            assert_eq!(code_and_text(wrong.clone()).0, Code::InvalidField, "{wrong}");
        }
    }
}
