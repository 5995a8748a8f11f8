//! Templates in the syntax of Jinja: which variables they use, and what they say with values. Nobody trusts a template, and one that doubles a
//! text thirty times fills any memory, so this runs in the confined child like every reader.
use crate::{FormatError, Limit, Limits};
use minijinja::{
    Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value, escape_formatter, value::Serde,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fmt,
    io::Read,
    sync::{Arc, Mutex, PoisonError},
};

/// The most instructions of a rendering.
const FUEL: u64 = 5_000_000;
/// How deep calls of macros and includes lie in each other; an include counts as ten.
const RECURSION: usize = 120;
/// The most bytes of a text that a rendering makes.
pub const TEMPLATE_OUTPUT_BYTES: usize = 1 << 20;

/// What is read or rendered: the input of [`crate::isolated::Step::Template`] as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TemplateJob {
    /// All templates that may be included, by id.
    pub templates: BTreeMap<i64, TemplateText>,
    /// The one that is rendered.
    pub main: i64,
    /// The values of the variables; without them the templates are only read.
    pub values: Option<serde_json::Map<String, serde_json::Value>>,
}

/// A template's text, and which templates it includes under which names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateText {
    pub text: String,
    #[serde(default)]
    pub partials: BTreeMap<String, i64>,
}

/// What a template is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateRead {
    /// The variables that each template uses and does not set, by the template's id.
    pub variables: BTreeMap<i64, Vec<String>>,
    /// What the template says with the values; `None` if they were not given, or there is a fault.
    pub text: Option<String>,
    pub fault: Option<TemplateFault>,
}

/// Why a template cannot be read or rendered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemplateFault {
    pub kind: TemplateFaultKind,
    /// The template that it is in.
    pub template: i64,
    pub detail: String,
    /// From 1, as is the column.
    pub line: Option<u32>,
    /// In Unicode code points.
    pub column: Option<u32>,
}

/// What kind of fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplateFaultKind {
    /// The text breaks the grammar.
    Syntax,
    /// The values do not suit the text.
    Values,
    /// It takes too many steps, or says more than [`TEMPLATE_OUTPUT_BYTES`].
    TooLong,
}

/// Reads templates, and renders the main one if there are values.
///
/// # Errors
/// The input is not a [`TemplateJob`] or too large.
pub fn template(input: impl Read, limits: &Limits) -> Result<TemplateRead, FormatError> {
    let mut bytes = Vec::new();
    input.take(limits.answer_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limits.answer_bytes {
        return Err(FormatError::over(Limit::AnswerBytes, "the templates and values are too large"));
    }
    let job: TemplateJob = serde_json::from_slice(&bytes).map_err(FormatError::crashed)?;
    Ok(rendered(&job))
}

fn rendered(job: &TemplateJob) -> TemplateRead {
    let missing = Arc::new(Mutex::new(None));
    let mut environment = environment(job, missing.clone());
    let mut read = TemplateRead::default();
    for (id, template) in &job.templates {
        if let Err(error) = environment.add_template_owned(id.to_string(), template.text.clone()) {
            read.fault = Some(fault(job, *id, &error, TemplateFaultKind::Syntax));
            return read;
        }
    }
    let globals: Vec<String> = environment.globals().map(|(name, _)| name.to_owned()).collect();
    for id in job.templates.keys() {
        let Ok(template) = environment.get_template(&id.to_string()) else { continue };
        let mut variables: Vec<String> =
            template.undeclared_variables(false).into_iter().filter(|name| !globals.contains(name)).collect();
        variables.sort_unstable();
        read.variables.insert(*id, variables);
    }
    let Some(values) = &job.values else { return read };
    let mut said = Said(Vec::new());
    environment.set_fuel(Some(FUEL));
    let done = environment
        .get_template(&job.main.to_string())
        .and_then(|template| template.render_captured_to(Value::from(Serde(values)), &mut said));
    match done {
        Ok(_) => read.text = Some(String::from_utf8_lossy(&said.0).into_owned()),
        Err(error) => {
            let mut found = fault(job, job.main, &error, kind(&error));
            let name = missing.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let (ErrorKind::TemplateNotFound, Some(name)) = (innermost(&error).kind(), name) {
                found.detail = format!("`{name}` is none of its partials");
            }
            read.fault = Some(found);
        }
    }
    read
}

fn environment(job: &TemplateJob, missing: Arc<Mutex<Option<String>>>) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_formatter(silent_none);
    environment.set_recursion_limit(RECURSION);
    // It would print all values of whoever renders.
    environment.remove_global("debug");
    let partials: BTreeMap<i64, BTreeMap<String, i64>> =
        job.templates.iter().map(|(id, template)| (*id, template.partials.clone())).collect();
    environment.set_path_join_callback(move |name, parent| {
        let id = parent.parse().ok().and_then(|parent: i64| partials.get(&parent)?.get(name));
        match id {
            Some(id) => id.to_string().into(),
            None => {
                *missing.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_owned());
                "none".into()
            }
        }
    });
    environment
}

/// A variable without a value says nothing.
fn silent_none(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_none() { Ok(()) } else { escape_formatter(out, state, value) }
}

fn kind(error: &Error) -> TemplateFaultKind {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<TooLong>()
            || error
                .downcast_ref::<std::io::Error>()
                .and_then(|error| error.get_ref())
                .is_some_and(|inner| inner.is::<TooLong>())
        {
            return TemplateFaultKind::TooLong;
        }
        if let Some(error) = error.downcast_ref::<Error>() {
            match error.kind() {
                ErrorKind::OutOfFuel | ErrorKind::WriteFailure => return TemplateFaultKind::TooLong,
                ErrorKind::SyntaxError => return TemplateFaultKind::Syntax,
                _ => {}
            }
        }
        cause = error.source();
    }
    TemplateFaultKind::Values
}

/// What an error comes from at last.
fn innermost(error: &Error) -> &Error {
    let mut inner = error;
    while let Some(cause) = std::error::Error::source(inner).and_then(|cause| cause.downcast_ref::<Error>()) {
        inner = cause;
    }
    inner
}

/// The innermost cause that has a place: that of an include is in the template that is included.
fn fault(job: &TemplateJob, main: i64, error: &Error, kind: TemplateFaultKind) -> TemplateFault {
    let inner = innermost(error);
    let placed = if inner.line().is_some() { inner } else { error };
    let template = placed.name().and_then(|name| name.parse().ok()).unwrap_or(main);
    let text = job.templates.get(&template).map_or("", |template| template.text.as_str());
    let column = placed.range().map(|range| {
        let before = text.get(..range.start.min(text.len())).unwrap_or_default();
        before.rsplit('\n').next().unwrap_or_default().chars().count() + 1
    });
    let mut detail =
        inner.detail().map_or_else(|| inner.kind().to_string(), |detail| format!("{}: {detail}", inner.kind()));
    detail.truncate(detail.floor_char_boundary(500));
    if kind == TemplateFaultKind::TooLong {
        detail = match inner.kind() {
            ErrorKind::OutOfFuel => format!("it takes more than {FUEL} steps"),
            _ => format!("it says more than {TEMPLATE_OUTPUT_BYTES} bytes"),
        };
    }
    let place = |number: usize| u32::try_from(number).ok();
    TemplateFault { kind, template, detail, line: placed.line().and_then(place), column: column.and_then(place) }
}

/// The text so far.
struct Said(Vec<u8>);

#[derive(Debug)]
struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the text is too long")
    }
}
impl std::error::Error for TooLong {}

impl std::io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() > TEMPLATE_OUTPUT_BYTES {
            return Err(std::io::Error::other(TooLong));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(texts: &[(&str, &[(&str, i64)])], values: Option<serde_json::Value>) -> TemplateRead {
        let templates = texts.iter().zip(1..).map(|((text, partials), id)| {
            let partials = partials.iter().map(|(name, id)| ((*name).to_owned(), *id)).collect();
            (id, TemplateText { text: (*text).to_owned(), partials })
        });
        let values = values.map(|values| values.as_object().unwrap().clone());
        rendered(&TemplateJob { templates: templates.collect(), main: 1, values })
    }

    #[test]
    fn a_template_says_what_its_values_and_partials_say() {
        let texts: &[(&str, &[(&str, i64)])] = &[
            (
                "{% include 'head' %}{% for d in docs %}\n* {{ d.title|upper }}{% endfor %}{{ note }}{% set x = 1 %}{{ x }}",
                &[("head", 2)],
            ),
            ("Dear {{ name }},{% include 'sub' %}", &[("sub", 3)]),
            (" <{{ range(2)|length }}>", &[]),
        ];
        let read = job(texts, Some(json!({"name": "Ada", "docs": [{"title": "a"}, {"title": "b"}], "note": null})));
        assert_eq!(read.text.as_deref(), Some("Dear Ada, <2>\n* A\n* B1"));
        assert_eq!(read.variables[&1], ["docs", "note"]);
        assert_eq!((read.variables[&2].as_slice(), read.variables[&3].as_slice()), (&["name".to_owned()][..], &[][..]));
    }

    #[test]
    fn a_fault_says_where_it_is() {
        let syntax = job(&[("a\nbö {% if %}\n", &[])], None).fault.unwrap();
        assert_eq!(
            (syntax.kind, syntax.line, syntax.column),
            (TemplateFaultKind::Syntax, Some(2), Some(10)),
            "{syntax:?}"
        );
        let texts: &[(&str, &[(&str, i64)])] = &[("x {% include 'p' %}", &[("p", 2)]), ("\n  {{ who.name }}", &[])];
        let values = job(texts, Some(json!({"who": {}}))).fault.unwrap();
        assert_eq!((values.kind, values.template, values.line), (TemplateFaultKind::Values, 2, Some(2)), "{values:?}");
        let gone = job(&[("{% include 'other' %}", &[])], Some(json!({}))).fault.unwrap();
        assert_eq!(gone.detail, "`other` is none of its partials");
        let later =
            job(&[("{% include 'other' ignore missing %}\n{{ 1 / 'x' }}", &[])], Some(json!({}))).fault.unwrap();
        assert!(!later.detail.contains("partials") && later.line == Some(2), "{later:?}");
        assert_eq!(job(&[("{{ debug() }}", &[])], Some(json!({}))).fault.unwrap().kind, TemplateFaultKind::Values);
        for path in ["/etc/passwd", "../x", "none", "1", "2"] {
            let read = job(&[(&format!("{{% include '{path}' %}}"), &[])], Some(json!({})));
            assert!(read.text.is_none(), "{path}: {read:?}");
        }
    }

    #[test]
    fn what_would_go_on_for_ever_ends() {
        for text in [
            "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}",
            "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
            "{% for a in range(9999) %}{{ 'x' * 9999 }}{% endfor %}",
        ] {
            let read = job(&[(text, &[])], Some(json!({})));
            assert!(read.text.is_none() && read.fault.is_some(), "{text}");
        }
        assert_eq!(
            job(&[("{{ 'x' * 2000000 }}", &[])], Some(json!({}))).fault.unwrap().kind,
            TemplateFaultKind::TooLong
        );
        assert!(job(&[(&"{{ (".repeat(10_000), &[])], None).fault.is_some());
    }
}
