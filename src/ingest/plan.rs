//! What an upload would do, shown without doing it.
use crate::{
    access::Caller,
    core::Core,
    error::OrFail,
    ingest::{
        options::{Options, Requested},
        rules,
        tasks::{
            OrTaskFailure,
            probe::{Measured, measure_file},
            types::TaskTypes,
        },
        unlock,
        upload::{Intake, recognise},
    },
    reader::limits_of_request,
    spool::{self, SpooledUpload},
    store,
    usetype::Usetype,
    words,
};
use serde_json::{Map, Value};
use svc_actors::TaskFailure;
use svc_client::{
    Failure,
    wire::{AnalyzeResponse, AnalyzedFile, ExplainRequest, PatternsSource, Plan, ProbeFailure, StoredAlready},
};
use svc_formats::{Format, Pattern, Patterns};

/// Plans a file of which only the format, and perhaps some patterns, are known.
pub fn explain(types: &TaskTypes, request: ExplainRequest) -> Result<Plan, Failure> {
    let Requested { options, .. } = Requested::read(request.options, types.groups())?;
    let format = request.format.parse::<Format>().ok();
    let has_prober = format.is_some_and(Format::has_prober);
    let (source, patterns, ignored) = match request.patterns {
        Some(supplied) => {
            let (patterns, ignored) = read_patterns(format, supplied)?;
            (PatternsSource::Supplied, Some(patterns), ignored)
        }
        None if has_prober => (PatternsSource::Unknown, None, Vec::new()),
        None => (PatternsSource::NoProber, Some(Patterns::default()), Vec::new()),
    };
    let mut plan = plan(types, request.format, source, patterns.as_ref(), &options);
    plan.patterns_ignored = ignored;
    Ok(plan)
}

fn plan(
    types: &TaskTypes,
    format: String,
    source: PatternsSource,
    patterns: Option<&Patterns>,
    options: &Options,
) -> Plan {
    let (known, options) = (format.parse::<Format>().ok(), options.to_value());
    Plan {
        prober_available: known.is_some_and(Format::has_prober),
        patterns_source: source,
        patterns_known: source != PatternsSource::Unknown,
        patterns_ignored: Vec::new(),
        tasks: rules::plan(types, known, patterns, &options),
        options,
        format,
    }
}

/// Reads the patterns that a caller supplies; also returns the names that no condition asks for.
fn read_patterns(format: Option<Format>, supplied: Map<String, Value>) -> Result<(Patterns, Vec<String>), Failure> {
    let (mut patterns, mut ignored) = (Patterns::default(), Vec::new());
    for (name, value) in supplied {
        let Ok(pattern) = name.parse::<Pattern>() else {
            ignored.push(name);
            continue;
        };
        let fits = match pattern {
            Pattern::SheetCount => value.is_u64(),
            _ => value.is_boolean(),
        };
        if !fits {
            let takes = if pattern == Pattern::SheetCount { "a whole number, 0 or more" } else { "true or false" };
            return Err(Failure::field(&format!("patterns.{name}"), format!("takes {takes}")));
        }
        if !rules::consults(format, pattern) {
            ignored.push(name);
        }
        patterns = patterns.with(pattern, value);
    }
    Ok((patterns, ignored))
}

/// Probes a file as the task of an upload would.
pub async fn analyze(
    core: &Core,
    intake: Intake<'_>,
    caller: &Caller,
    upload: SpooledUpload,
) -> Result<AnalyzeResponse, Failure> {
    let Intake { admission, types, .. } = intake;
    let SpooledUpload { filename, declared_mime, file, options } = upload;
    let Requested { options, password } = Requested::read(options, types.groups())?;
    let (spooled, detection) = recognise(file, filename.as_deref()).await?;
    let already_stored = stored_already(core, types, caller, &spooled.content_hash, &options).await?;
    let opened = match (password, detection.format) {
        (Some(password), Some(format)) => {
            let opened = unlock::unlock(core, admission, caller, &spooled.file, format, password).await?;
            opened.map(|opened| (format, opened))
        }
        _ => None,
    };
    let measured = match opened {
        Some((format, opened)) => Ok((format, opened.patterns().clone())),
        None => {
            let _permit = admission.reader(caller.principal_id()).await?;
            let limits = limits_of_request(&core.settings);
            let open = || spool::reopen(&spooled.file).classified();
            let measured = measure_file(core, types, &limits, detection.format, open).await;
            measured.and_then(|Measured { format, patterns, refusal, .. }| match refusal {
                Some(refusal) => Err(refusal).classified(),
                None => Ok((format, patterns)),
            })
        }
    };
    let (plan, probe_failed) = match measured {
        Ok((format, patterns)) => {
            let source = if format.has_prober() { PatternsSource::Probed } else { PatternsSource::NoProber };
            (Some(plan(types, format.to_string(), source, Some(&patterns), &options)), None)
        }
        Err(TaskFailure { class, code, message, .. }) => {
            (None, Some(ProbeFailure { error_type: words::error_type(class), code, message }))
        }
    };
    let mime_agrees = detection.mime.as_deref().zip(declared_mime.as_deref()).map(|(is, said)| same_type(is, said));
    let file = AnalyzedFile {
        filename,
        byte_size: spooled.byte_size,
        content_hash: spooled.content_hash,
        format: detection.format.map(|format| format.to_string()),
        detected_mime: detection.mime,
        detected_by: detection.by.map(words::detected_by),
        declared_mime,
        mime_agrees,
    };
    Ok(AnalyzeResponse { file, plan, probe_failed, already_stored })
}

/// The node that an upload of these bytes would find.
async fn stored_already(
    core: &Core,
    types: &TaskTypes,
    caller: &Caller,
    content_hash: &str,
    options: &Options,
) -> Result<Option<StoredAlready>, Failure> {
    let mut conn = core.pool.acquire().await.or_fail()?;
    let Some(blob) =
        store::blobs::find(&mut conn, &caller.readable(), Usetype::File, content_hash, false).await.or_fail()?
    else {
        return Ok(None);
    };
    let node = store::documents::read(&mut conn, &caller.readable(), blob.document_id, false).await.or_fail()?;
    Ok(node.map(|node| StoredAlready {
        document_id: node.id.0,
        settled: node.settled.0,
        options_agree: options.agree_with(&blob.options, types.groups()),
        options: blob.options,
    }))
}

/// Compares media types by their type and subtype; parameters, such as a charset, say nothing of the format.
fn same_type(one: &str, other: &str) -> bool {
    let essence = |mime: &str| mime.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence(one) == essence(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use svc_client::Code;

    fn asked(format: &str, patterns: Value) -> Result<Plan, Failure> {
        let patterns = patterns.as_object().cloned();
        explain(&TaskTypes::default(), ExplainRequest { format: format.to_owned(), patterns, options: None })
    }

    #[test]
    fn where_the_patterns_come_from_is_said() {
        for (format, patterns, source, known, prober) in [
            ("pdf", Value::Null, PatternsSource::Unknown, false, true),
            ("pdf", json!({}), PatternsSource::Supplied, true, true),
            ("zip", Value::Null, PatternsSource::NoProber, true, false),
            ("zip", json!({"has_text_layer": true}), PatternsSource::Supplied, true, false),
            ("cake", Value::Null, PatternsSource::NoProber, true, false),
        ] {
            let plan = asked(format, patterns.clone()).expect("a plan");
            let said = (plan.patterns_source, plan.patterns_known, plan.prober_available);
            assert_eq!(said, (source, known, prober), "{format} {patterns}");
        }
    }

    #[test]
    fn patterns_that_nothing_asks_for_are_named() {
        let plan =
            asked("docx", json!({"has_text_layer": true, "has_headings": true, "has_cherries": 3, "sheet_count": 2}));
        assert_eq!(plan.expect("a plan").patterns_ignored, ["has_cherries", "has_headings", "sheet_count"]);
    }

    #[test]
    fn a_pattern_of_the_wrong_type_is_refused_by_name() {
        for wrong in [json!({"has_sheets": "yes"}), json!({"sheet_count": true}), json!({"sheet_count": -1})] {
            let failure = asked("xlsx", wrong.clone()).expect_err("refused");
            assert_eq!(failure.code, Code::InvalidField, "{wrong}");
            assert!(failure.detail.contains("patterns."), "{failure:?}");
        }
    }

    #[test]
    fn media_types_are_compared_without_their_parameters() {
        assert!(same_type("text/plain", "Text/Plain; charset=utf-8"));
        assert!(!same_type("text/plain", "text/markdown"));
    }
}
