//! The rule table: which tasks a file gets, by its format and patterns. The plans that callers see and the tasks that a probe
//! queues derive from it, so that they cannot disagree.
use crate::{
    ingest::tasks::types::{
        EXTRACT_IMAGES, EXTRACT_MEMBERS, EXTRACT_TABLES, EXTRACT_TEXT, OCR, STRUCTURE_DECLARED, STRUCTURE_INFERRED,
        STRUCTURE_SHEETS, TaskType, TaskTypes,
    },
    words,
};
use serde_json::Value;
use svc_client::wire::{PlanOutcome, PlanRow};
use svc_formats::{Format, Pattern, Patterns};

/// One row: a task, and when it is due.
pub struct Rule {
    pub task: &'static TaskType,
    requires: &'static [Pattern],
    forbids: &'static [Pattern],
    /// The formats in whose files the condition can hold.
    formats: &'static [Format],
    /// Whether the text that OCR gives does as well as a text layer of the file.
    takes_ocr: bool,
    /// Tasks of the same node that come first, if they are queued at all.
    pub after: &'static [&'static TaskType],
    /// The option of the group `skip` that leaves the task out.
    option: Option<&'static str>,
    /// Whether the plans of explain and analyze show this row; the tasks of a workbook's sheets and of a container's members
    /// are queued but not shown.
    planned: bool,
}

/// Stands for the pattern that declares a format's headings; see [`Rule::pattern`].
const DECLARED: Pattern = Pattern::HasHeadings;

/// The formats whose patterns are measured. An encrypted file is `ole2`, whatever it turns out to hold.
const PROBED: &[Format] = &[
    Format::Text,
    Format::Pdf,
    Format::Docx,
    Format::Pptx,
    Format::Xlsx,
    Format::Ole2,
    Format::Html,
    Format::Csv,
    Format::Tsv,
    Format::Eml,
    Format::Json,
    Format::Ipynb,
    Format::Rtf,
    Format::Xml,
    Format::Odt,
    Format::Odp,
    Format::Epub,
    Format::Ods,
    Format::Xls,
    Format::Xlsb,
    Format::Msg,
    Format::Doc,
    Format::Ppt,
    Format::Image,
    Format::Vtt,
    Format::Srt,
    // Of an archive that its password opened, the text is measured.
    Format::Zip,
];
/// The formats that are read as workbooks. An encrypted file is `ole2`, whatever it turns out to hold.
const WORKBOOKS: &[Format] =
    &[Format::Xlsx, Format::Ole2, Format::Csv, Format::Tsv, Format::Ods, Format::Xls, Format::Xlsb];
/// The formats whose pictures and charts are looked for. An encrypted file is `ole2`, whatever it turns out to hold.
const WITH_IMAGES: &[Format] = &[
    Format::Pdf,
    Format::Docx,
    Format::Pptx,
    Format::Xlsx,
    Format::Odt,
    Format::Odp,
    Format::Ods,
    Format::Epub,
    Format::Html,
    Format::Ole2,
];
/// The formats whose pages may be scans. A picture is one page.
const PAGED: &[Format] = &[Format::Pdf, Format::Image];
/// The formats whose tables are looked for: on the pages of a PDF, else in Markdown, which the readers of the others write. An encrypted
/// file is `ole2`, whatever it turns out to hold.
const WITH_TABLES: &[Format] = &[
    Format::Text,
    Format::Pdf,
    Format::Docx,
    Format::Pptx,
    Format::Html,
    Format::Eml,
    Format::Msg,
    Format::Doc,
    Format::Ppt,
    Format::Ipynb,
    Format::Rtf,
    Format::Xml,
    Format::Odt,
    Format::Odp,
    Format::Epub,
    Format::Ole2,
    Format::Zip,
];

/// Pages that are pictures, or whose fonts cannot be read, are read once the text of the others is stored, and before anything is
/// made of the text.
const OCR_RULE: Rule = Rule {
    task: &OCR,
    requires: &[Pattern::HasScannedPages],
    forbids: &[],
    formats: PAGED,
    takes_ocr: false,
    after: &[&EXTRACT_TEXT],
    option: Some("ocr"),
    planned: true,
};

/// The tasks of the downward pass, in order.
pub static RULES: &[Rule] = &[
    Rule {
        task: &EXTRACT_TEXT,
        requires: &[Pattern::HasTextLayer],
        forbids: &[Pattern::HasMarkup],
        formats: PROBED,
        takes_ocr: false,
        after: &[],
        option: None,
        planned: true,
    },
    Rule {
        task: &EXTRACT_TABLES,
        requires: &[Pattern::HasTextLayer, Pattern::HasTables],
        forbids: &[],
        formats: WITH_TABLES,
        takes_ocr: false,
        after: &[&EXTRACT_TEXT],
        option: Some("tables"),
        planned: true,
    },
    Rule {
        task: &EXTRACT_IMAGES,
        requires: &[Pattern::HasImages],
        forbids: &[],
        formats: WITH_IMAGES,
        takes_ocr: false,
        after: &[&EXTRACT_TEXT],
        option: Some("images"),
        planned: true,
    },
    OCR_RULE,
    Rule {
        task: &STRUCTURE_DECLARED,
        requires: &[Pattern::HasTextLayer, DECLARED],
        forbids: &[],
        formats: PROBED,
        takes_ocr: true,
        after: &[&EXTRACT_TEXT, &EXTRACT_TABLES, &OCR],
        option: None,
        planned: true,
    },
    Rule {
        task: &STRUCTURE_INFERRED,
        requires: &[Pattern::HasTextLayer],
        forbids: &[DECLARED],
        formats: PROBED,
        takes_ocr: true,
        after: &[&EXTRACT_TEXT, &EXTRACT_TABLES, &OCR],
        option: None,
        planned: true,
    },
    Rule {
        task: &STRUCTURE_SHEETS,
        requires: &[Pattern::HasSheets],
        forbids: &[],
        formats: WORKBOOKS,
        takes_ocr: false,
        after: &[],
        option: None,
        planned: false,
    },
    Rule {
        task: &EXTRACT_MEMBERS,
        requires: &[Pattern::HasMembers],
        forbids: &[],
        formats: &[Format::Zip, Format::Eml, Format::Msg],
        takes_ocr: false,
        after: &[&STRUCTURE_DECLARED, &STRUCTURE_INFERRED],
        option: None,
        planned: false,
    },
];

/// What becomes of one task, and why.
#[derive(Debug, PartialEq, Eq)]
struct Decision {
    outcome: PlanOutcome,
    if_condition_holds: Option<PlanOutcome>,
    reason: Option<String>,
}

impl Decision {
    fn of(outcome: PlanOutcome) -> Decision {
        Decision { outcome, if_condition_holds: None, reason: None }
    }

    fn not_applicable(reason: String) -> Decision {
        Decision { outcome: PlanOutcome::NotApplicable, if_condition_holds: None, reason: Some(reason) }
    }
}

impl Rule {
    /// In office files other patterns declare headings than in text and PDF. A spreadsheet of OpenDocument and a legacy workbook have a text if
    /// their password opened them, and then headings, the names of their sheets.
    fn pattern(pattern: Pattern, format: Option<Format>) -> Pattern {
        match (pattern, format) {
            (DECLARED, Some(Format::Docx)) => Pattern::HasHeadingStyles,
            (DECLARED, Some(Format::Pptx)) => Pattern::HasSlides,
            (DECLARED, Some(Format::Ods | Format::Xls)) => DECLARED,
            (DECLARED, Some(format)) if format.has_sheets() => Pattern::HasSheets,
            (pattern, _) => pattern,
        }
    }

    fn requires(&self, format: Option<Format>) -> impl Iterator<Item = Pattern> {
        self.requires.iter().map(move |pattern| Rule::pattern(*pattern, format))
    }

    fn forbids(&self, format: Option<Format>) -> impl Iterator<Item = Pattern> {
        self.forbids.iter().map(move |pattern| Rule::pattern(*pattern, format))
    }

    fn fits(&self, format: Option<Format>) -> bool {
        format.is_some_and(|format| self.formats.contains(&format))
    }

    /// Whether the options have the task skipped.
    fn is_skipped(&self, options: &Value) -> bool {
        self.option.is_some_and(|key| options["skip"][key] == true)
    }

    /// Decides the task. `format` is `None` for a name that belongs to no detector, and `patterns` if nobody measured them.
    fn decide(
        &self,
        types: &TaskTypes,
        format: Option<Format>,
        patterns: Option<&Patterns>,
        options: &Value,
    ) -> Decision {
        let due = match types.has_handler(self.task) {
            _ if self.is_skipped(options) => PlanOutcome::Skipped,
            true => PlanOutcome::Enqueued,
            false => PlanOutcome::Deferred,
        };
        if !self.fits(format) {
            return Decision::of(PlanOutcome::Impossible);
        }
        let Some(patterns) = patterns else {
            return Decision { outcome: PlanOutcome::Conditional, if_condition_holds: Some(due), reason: None };
        };
        let is_given = |pattern: Pattern| {
            self.takes_ocr
                && pattern == Pattern::HasTextLayer
                && types.ocr_gives_text()
                && OCR_RULE.decide(types, format, Some(patterns), options).outcome == PlanOutcome::Enqueued
        };
        let missing = self.asked(types, format).find(|pattern| !holds(patterns, *pattern) && !is_given(*pattern));
        let present = self.forbids(format).find(|pattern| holds(patterns, *pattern));
        match (missing, present) {
            (Some(pattern), _) if patterns.get(pattern).is_none() => {
                Decision::not_applicable(format!("{pattern} was not measured"))
            }
            (Some(pattern), _) => Decision::not_applicable(format!("{pattern} is false")),
            (None, Some(pattern)) => Decision::not_applicable(format!("{pattern} is true")),
            (None, None) => {
                let reason = match self.option.filter(|_| due == PlanOutcome::Skipped) {
                    Some(key) => Some(format!("the option skip.{key} is true")),
                    None => types.remedy(self.task).map(str::to_owned),
                };
                Decision { outcome: due, if_condition_holds: None, reason }
            }
        }
    }

    /// What the task requires here. Without an engine nobody can read single pages, and the plan is that of the contract.
    fn asked(&self, types: &TaskTypes, format: Option<Format>) -> impl Iterator<Item = Pattern> {
        let has_engine = types.ocr_gives_text();
        self.requires(format).map(move |pattern| match pattern {
            Pattern::HasScannedPages if !has_engine => Pattern::IsScanned,
            pattern => pattern,
        })
    }

    fn row(&self, types: &TaskTypes, format: Option<Format>, patterns: Option<&Patterns>, options: &Value) -> PlanRow {
        let Decision { outcome, if_condition_holds, reason } = self.decide(types, format, patterns, options);
        let task = types.current(self.task);
        PlanRow {
            task: task.name.to_owned(),
            outcome,
            if_condition_holds,
            reason,
            write_mode: words::write_mode(task.write_mode),
            requires: self.asked(types, format).map(|pattern| pattern.to_string()).collect(),
            forbids: self.forbids(format).map(|pattern| pattern.to_string()).collect(),
            after: self
                .after
                .iter()
                .filter(|after| {
                    is_possible(after, format)
                        && (types.ocr_gives_text() || ![after.name, task.name].contains(&OCR.name))
                })
                .map(|task| task.name.to_owned())
                .collect(),
            params: task.params(options),
        }
    }
}

/// Whether a task can be due in files of this format.
fn is_possible(task: &TaskType, format: Option<Format>) -> bool {
    RULES.iter().any(|rule| rule.task.name == task.name && rule.fits(format))
}

/// The patterns that do as well as another one. Pages whose fonts cannot be read are read as scans are.
fn stand_ins(pattern: Pattern) -> &'static [Pattern] {
    match pattern {
        Pattern::HasScannedPages => &[Pattern::IsScanned, Pattern::HasUnusablePages],
        Pattern::IsScanned => &[Pattern::HasUnusablePages],
        _ => &[],
    }
}

/// Whether a pattern was found true, or one that does as well.
fn holds(patterns: &Patterns, pattern: Pattern) -> bool {
    patterns.holds(pattern) || stand_ins(pattern).iter().any(|other| patterns.holds(*other))
}

/// The plan of a file: a row for each task that plans show, with what it takes from these options.
pub fn plan(types: &TaskTypes, format: Option<Format>, patterns: Option<&Patterns>, options: &Value) -> Vec<PlanRow> {
    RULES.iter().filter(|rule| rule.planned).map(|rule| rule.row(types, format, patterns, options)).collect()
}

/// Whether a task gives its file a text, sheets or members. Without one of these a file says why it has none.
pub fn gives_text(task: &TaskType) -> bool {
    task.name != EXTRACT_IMAGES.name
}

/// The tasks to queue after the probe, in their order.
pub fn due(
    types: &TaskTypes,
    format: Format,
    patterns: &Patterns,
    options: &Value,
) -> impl Iterator<Item = &'static Rule> {
    let is_due =
        move |rule: &&Rule| rule.decide(types, Some(format), Some(patterns), options).outcome == PlanOutcome::Enqueued;
    RULES.iter().filter(is_due)
}

/// Whether the condition of any task in the plan of this format asks for a pattern.
pub fn consults(format: Option<Format>, pattern: Pattern) -> bool {
    let rules = RULES.iter().filter(|rule| rule.planned && rule.fits(format));
    rules
        .flat_map(|rule| rule.requires(format).chain(rule.forbids(format)))
        .any(|asked| asked == pattern || stand_ins(asked).contains(&pattern))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ingest::options::Options;

    fn enqueued(format: Format, patterns: &[Pattern]) -> Vec<&'static str> {
        enqueued_by(&TaskTypes::default(), format, patterns)
    }

    fn enqueued_by(types: &TaskTypes, format: Format, patterns: &[Pattern]) -> Vec<&'static str> {
        let patterns = patterns.iter().fold(Patterns::default(), |all, p| all.with(*p, true));
        due(types, format, &patterns, &Options::default().to_value()).map(|rule| rule.task.name).collect()
    }

    #[test]
    fn what_an_engine_reads_is_structured_after_it() {
        use Pattern::*;
        let mut types = TaskTypes::default();
        types.set_ocr(true);
        for (format, patterns, expected) in [
            (Format::Pdf, &[IsScanned, HasImages][..], &["extract:images", "ocr", "structure:inferred"][..]),
            (Format::Pdf, &[IsScanned, HasScannedPages, HasHeadings, HasOutline], &["ocr", "structure:declared"]),
            (Format::Pdf, &[HasTextLayer, HasScannedPages], &["extract:text", "ocr", "structure:inferred"]),
            (Format::Pdf, &[HasUnusablePages], &["ocr", "structure:inferred"]),
            (Format::Image, &[IsScanned, HasScannedPages], &["ocr", "structure:inferred"]),
            (Format::Image, &[], &[]),
            (Format::Pdf, &[HasTextLayer, HasUnusablePages], &["extract:text", "ocr", "structure:inferred"]),
            (Format::Pdf, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Pdf, &[IsEncrypted], &[]),
            (Format::Docx, &[IsScanned], &[]),
        ] {
            assert_eq!(enqueued_by(&types, format, patterns), expected, "{format} {patterns:?}");
        }
        let scan = Patterns::default().with(IsScanned, true);
        let rows = plan(&types, Some(Format::Pdf), Some(&scan), &Options::default().to_value());
        let inferred = rows.iter().find(|row| row.task == "structure:inferred").expect("a row a task");
        assert_eq!(
            (inferred.outcome, &inferred.after),
            (PlanOutcome::Enqueued, &["extract:text", "extract:tables", "ocr"].map(str::to_owned).to_vec())
        );
        for pattern in [IsScanned, HasScannedPages, HasUnusablePages] {
            assert!(consults(Some(Format::Pdf), pattern), "{pattern}");
        }
    }

    #[test]
    fn what_an_option_switches_off_is_skipped_and_nothing_waits_for_it() {
        let mut types = TaskTypes::default();
        types.set_ocr(true);
        let options = serde_json::json!({"skip": {"ocr": true}});
        let scan = Patterns::default().with(Pattern::IsScanned, true);
        let rows = plan(&types, Some(Format::Pdf), Some(&scan), &options);
        let outcome = |task: &str| rows.iter().find(|row| row.task == task).expect("a row a task").outcome;
        assert_eq!(outcome("ocr"), PlanOutcome::Skipped);
        assert_eq!(outcome("structure:inferred"), PlanOutcome::NotApplicable);
        let reason = rows.iter().find(|row| row.task == "ocr").and_then(|row| row.reason.as_deref());
        assert_eq!(reason, Some("the option skip.ocr is true"));
        assert_eq!(due(&types, Format::Pdf, &scan, &options).count(), 0);
        let unknown = plan(&types, Some(Format::Pdf), None, &options);
        let ocr = unknown.iter().find(|row| row.task == "ocr").expect("a row a task");
        assert_eq!((ocr.outcome, ocr.if_condition_holds), (PlanOutcome::Conditional, Some(PlanOutcome::Skipped)));
        let text = Patterns::default().with(Pattern::HasTextLayer, true);
        let rows = plan(&types, Some(Format::Pdf), Some(&text), &options);
        let ocr = rows.iter().find(|row| row.task == "ocr").expect("a row a task");
        assert_eq!(ocr.outcome, PlanOutcome::NotApplicable, "what is not due is not skipped");
    }

    #[test]
    fn tables_are_looked_for_unless_an_option_says_no() {
        let types = TaskTypes::default();
        let patterns = Patterns::default().with(Pattern::HasTextLayer, true).with(Pattern::HasTables, true);
        let outcome = |options: Value| {
            let rows = plan(&types, Some(Format::Docx), Some(&patterns), &options);
            rows.iter().find(|row| row.task == "extract:tables").expect("a row a task").outcome
        };
        assert_eq!(outcome(Options::default().to_value()), PlanOutcome::Enqueued);
        assert_eq!(outcome(serde_json::json!({"skip": {"tables": true}})), PlanOutcome::Skipped);
        let options = serde_json::json!({"skip": {"tables": true}});
        let due: Vec<_> = due(&types, Format::Docx, &patterns, &options).map(|rule| rule.task.name).collect();
        assert_eq!(due, ["extract:text", "structure:inferred"]);
    }

    #[test]
    fn a_text_is_structured_by_what_it_declares() {
        use Pattern::*;
        for (format, patterns, expected) in [
            (Format::Text, &[HasTextLayer][..], &["extract:text", "structure:inferred"][..]),
            (Format::Text, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Pdf, &[HasTextLayer, HasHeadings, HasOutline], &["extract:text", "structure:declared"]),
            (Format::Docx, &[HasTextLayer, HasHeadingStyles], &["extract:text", "structure:declared"]),
            (Format::Docx, &[HasTextLayer, HasHeadings], &["extract:text", "structure:inferred"]),
            (Format::Text, &[HasTextLayer, HasTables], &["extract:text", "extract:tables", "structure:inferred"]),
            (Format::Ole2, &[HasTextLayer, HasTables], &["extract:text", "extract:tables", "structure:inferred"]),
            (Format::Ole2, &[HasSheets, HasImages], &["extract:images", "structure:sheets"]),
            (Format::Pdf, &[HasTables], &[]),
            (Format::Xlsx, &[HasTextLayer, HasTables], &["extract:text", "structure:inferred"]),
            (Format::Pptx, &[HasTextLayer, HasSlides], &["extract:text", "structure:declared"]),
            (Format::Pdf, &[IsScanned, HasImages], &["extract:images"]),
            (Format::Docx, &[HasTextLayer, HasImages], &["extract:text", "extract:images", "structure:inferred"]),
            (Format::Ods, &[HasSheets, HasImages], &["extract:images", "structure:sheets"]),
            (Format::Text, &[HasTextLayer, HasImages], &["extract:text", "structure:inferred"]),
            (Format::Xlsx, &[HasSheets, HasComments], &["structure:sheets"]),
            (Format::Html, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Text, &[HasMarkup], &[]),
            (Format::Eml, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Json, &[HasTextLayer], &["extract:text", "structure:inferred"]),
            (Format::Ipynb, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Rtf, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Xml, &[HasTextLayer], &["extract:text", "structure:inferred"]),
            (Format::Odt, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Odp, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Epub, &[HasTextLayer], &["extract:text", "structure:inferred"]),
            (Format::Csv, &[HasSheets], &["structure:sheets"]),
            (Format::Tsv, &[HasSheets], &["structure:sheets"]),
            (Format::Ods, &[HasSheets], &["structure:sheets"]),
            (Format::Ods, &[IsEncrypted, HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Ods, &[IsEncrypted], &[]),
            (Format::Xls, &[HasSheets, IsLegacyBinary], &["structure:sheets"]),
            (Format::Xls, &[IsEncrypted, HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Xlsb, &[HasSheets, HasComments], &["structure:sheets"]),
            (Format::Xlsx, &[], &[]),
            (Format::Zip, &[HasMembers], &["extract:members"]),
            (Format::Eml, &[HasMembers, HasTextLayer], &["extract:text", "structure:inferred", "extract:members"]),
            (Format::Msg, &[HasMembers, HasTextLayer], &["extract:text", "structure:inferred", "extract:members"]),
            (Format::Doc, &[HasTextLayer, HasTables], &["extract:text", "extract:tables", "structure:inferred"]),
            (Format::Ppt, &[HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Doc, &[IsEncrypted, IsLegacyBinary], &[]),
            (Format::Zip, &[IsEncrypted, HasTextLayer, HasHeadings], &["extract:text", "structure:declared"]),
            (Format::Zip, &[], &[]),
            (Format::Vtt, &[HasTextLayer], &["extract:text", "structure:inferred"]),
            (Format::Srt, &[HasTextLayer], &["extract:text", "structure:inferred"]),
        ] {
            assert_eq!(enqueued(format, patterns), expected, "{format} {patterns:?}");
        }
    }

    #[test]
    fn plans_show_the_downward_pass_and_nothing_else() {
        let options = Options::default().to_value();
        let plan = plan(&TaskTypes::default(), Some(Format::Xlsx), Some(&Patterns::default()), &options);
        let tasks: Vec<_> = plan.iter().map(|row| row.task.as_str()).collect();
        let shown =
            ["extract:text", "extract:tables", "extract:images", "ocr", "structure:declared", "structure:inferred"];
        assert_eq!(tasks, shown);
    }

    /// A line for each task: what becomes of it.
    fn shown(format: Option<Format>, patterns: Option<&Patterns>) -> Vec<String> {
        let rows = plan(&TaskTypes::default(), format, patterns, &Options::default().to_value());
        let shown = rows.into_iter().map(|row| {
            let then = row.if_condition_holds.map(|then| format!(", if so {then}")).unwrap_or_default();
            let reason = row.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("{} {}{then}{reason}", row.task, row.outcome)
        });
        shown.collect()
    }

    #[test]
    fn each_outcome_follows_from_format_and_patterns() {
        let patterns = |names: &[Pattern]| names.iter().fold(Patterns::default(), |all, name| all.with(*name, true));
        let workbook = patterns(&[Pattern::HasSheets]);
        assert_eq!(
            shown(Some(Format::Xlsx), Some(&workbook))[0],
            "extract:text not_applicable: has_text_layer was not measured"
        );
        assert_eq!(
            shown(Some(Format::Pdf), None),
            [
                "extract:text conditional, if so enqueued",
                "extract:tables conditional, if so enqueued",
                "extract:images conditional, if so enqueued",
                "ocr conditional, if so deferred",
                "structure:declared conditional, if so enqueued",
                "structure:inferred conditional, if so enqueued",
            ]
        );
        let scan = patterns(&[Pattern::IsScanned]).with(Pattern::HasTextLayer, false);
        assert_eq!(
            shown(Some(Format::Pdf), Some(&scan))[3],
            "ocr deferred: there is no OCR engine: set SVC_OCR_ENGINE, and reprocess the file"
        );
        let unusable = patterns(&[Pattern::HasTextLayer, Pattern::HasUnusablePages]).with(Pattern::IsScanned, false);
        assert_eq!(
            shown(Some(Format::Pdf), Some(&unusable))[3],
            "ocr deferred: there is no OCR engine: set SVC_OCR_ENGINE, and reprocess the file"
        );
        assert_eq!(shown(Some(Format::Pdf), Some(&scan))[0], "extract:text not_applicable: has_text_layer is false");
        let headings = patterns(&[Pattern::HasTextLayer, Pattern::HasHeadings]);
        assert_eq!(
            shown(Some(Format::Text), Some(&headings))[5],
            "structure:inferred not_applicable: has_headings is true"
        );
        assert_eq!(shown(Some(Format::Text), Some(&headings))[3], "ocr impossible");
    }

    #[test]
    fn nothing_is_queued_for_a_format_that_nobody_knows() {
        let everything = Pattern::ALL.into_iter().fold(Patterns::default(), |all, name| all.with(name, true));
        for patterns in [None, Some(&Patterns::default()), Some(&everything)] {
            assert!(shown(None, patterns).iter().all(|row| row.ends_with("impossible")), "{patterns:?}");
        }
        assert!(Pattern::ALL.into_iter().all(|pattern| !consults(None, pattern)));
    }

    #[test]
    fn a_row_shows_its_conditions_in_the_words_of_the_format() {
        let rows = plan(&TaskTypes::default(), Some(Format::Docx), None, &Options::default().to_value());
        let declared = rows.iter().find(|row| row.task == "structure:declared").expect("a row a task");
        assert_eq!(declared.requires, ["has_text_layer", "has_heading_styles"]);
        assert_eq!(declared.after, ["extract:text", "extract:tables"]);
        assert_eq!(declared.params["structure"]["max_tokens"], 120);
        assert!(
            consults(Some(Format::Docx), Pattern::HasHeadingStyles)
                && !consults(Some(Format::Docx), Pattern::HasHeadings)
        );
    }
}
