//! The rule table: which tasks a file gets, by its format and measured patterns.
use crate::ingest::tasks::types::{
    EXTRACT_IMAGES, EXTRACT_TABLES, EXTRACT_TEXT, OCR, STRUCTURE_DECLARED, STRUCTURE_INFERRED, STRUCTURE_SHEETS,
    TaskType,
};
use serde::Serialize;
use svc_formats::{Format, Pattern, Patterns};

/// One row: a task, and when it is due.
pub struct Rule {
    pub task: &'static TaskType,
    requires: &'static [Pattern],
    forbids: &'static [Pattern],
    /// Tasks of the same node that come first, if they are queued at all.
    pub after: &'static [&'static TaskType],
    /// Whether the plans of explain and analyze show this row; the tasks of a workbook's sheets are queued but not
    /// shown.
    planned: bool,
}

/// Stands for the pattern that declares a format's headings; see [`Rule::pattern`].
const DECLARED: Pattern = Pattern::HasHeadings;

/// The tasks of the downward pass, in order.
pub static RULES: &[Rule] = &[
    Rule {
        task: &EXTRACT_TEXT,
        requires: &[Pattern::HasTextLayer],
        forbids: &[Pattern::HasMarkup],
        after: &[],
        planned: true,
    },
    Rule {
        task: &EXTRACT_TABLES,
        requires: &[Pattern::HasTextLayer],
        forbids: &[],
        after: &[&EXTRACT_TEXT],
        planned: true,
    },
    Rule {
        task: &EXTRACT_IMAGES,
        requires: &[Pattern::HasImages],
        forbids: &[],
        after: &[&EXTRACT_TEXT],
        planned: true,
    },
    Rule { task: &OCR, requires: &[Pattern::IsScanned], forbids: &[], after: &[], planned: true },
    Rule {
        task: &STRUCTURE_DECLARED,
        requires: &[Pattern::HasTextLayer, DECLARED],
        forbids: &[],
        after: &[&EXTRACT_TEXT],
        planned: true,
    },
    Rule {
        task: &STRUCTURE_INFERRED,
        requires: &[Pattern::HasTextLayer],
        forbids: &[DECLARED],
        after: &[&EXTRACT_TEXT],
        planned: true,
    },
    Rule { task: &STRUCTURE_SHEETS, requires: &[Pattern::HasSheets], forbids: &[], after: &[], planned: false },
];

/// The outcome for a task, decided by known patterns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Enqueued,
    /// The task is due, but nothing here can do it.
    Deferred,
    NotApplicable,
}

/// One row of a file's plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decision {
    pub task: &'static str,
    pub outcome: Verdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Rule {
    /// In office files other patterns declare headings than in text and PDF.
    fn pattern(&self, pattern: Pattern, format: Format) -> Pattern {
        match (pattern, format) {
            (DECLARED, Format::Docx) => Pattern::HasHeadingStyles,
            (DECLARED, Format::Pptx) => Pattern::HasSlides,
            (DECLARED, Format::Xlsx) => Pattern::HasSheets,
            (pattern, _) => pattern,
        }
    }

    /// Decides one task.
    pub fn decide(&self, format: Format, patterns: &Patterns) -> Decision {
        let missing = self.requires.iter().map(|p| self.pattern(*p, format)).find(|p| !patterns.holds(*p));
        let present = self.forbids.iter().map(|p| self.pattern(*p, format)).find(|p| patterns.holds(*p));
        let (outcome, reason) = match (missing, present) {
            (Some(pattern), _) if patterns.get(pattern).is_none() => {
                (Verdict::NotApplicable, Some(format!("{pattern} was not measured")))
            }
            (Some(pattern), _) => (Verdict::NotApplicable, Some(format!("{pattern} is false"))),
            (None, Some(pattern)) => (Verdict::NotApplicable, Some(format!("{pattern} is true"))),
            (None, None) if self.task.has_handler() => (Verdict::Enqueued, None),
            (None, None) => (Verdict::Deferred, Some("no handler is registered".to_owned())),
        };
        Decision { task: self.task.name, outcome, reason }
    }
}

/// The plan of a file: a row for each task that plans show.
pub fn plan(format: Format, patterns: &Patterns) -> Vec<Decision> {
    RULES.iter().filter(|rule| rule.planned).map(|rule| rule.decide(format, patterns)).collect()
}

/// The tasks to queue after the probe, in their order.
pub fn due(format: Format, patterns: &Patterns) -> impl Iterator<Item = &'static Rule> {
    RULES.iter().filter(move |rule| rule.decide(format, patterns).outcome == Verdict::Enqueued)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enqueued(format: Format, patterns: &[Pattern]) -> Vec<&'static str> {
        let patterns = patterns.iter().fold(Patterns::default(), |all, p| all.with(*p, true));
        due(format, &patterns).map(|rule| rule.task.name).collect()
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
            (Format::Pptx, &[HasTextLayer, HasSlides], &["extract:text", "structure:declared"]),
            (Format::Pdf, &[IsScanned, HasImages], &[]),
            (Format::Xlsx, &[HasSheets, HasComments], &["structure:sheets"]),
            (Format::Xlsx, &[], &[]),
        ] {
            assert_eq!(enqueued(format, patterns), expected, "{format} {patterns:?}");
        }
    }

    #[test]
    fn plans_show_the_downward_pass_and_nothing_else() {
        let tasks: Vec<_> = plan(Format::Xlsx, &Patterns::default()).into_iter().map(|row| row.task).collect();
        let shown =
            ["extract:text", "extract:tables", "extract:images", "ocr", "structure:declared", "structure:inferred"];
        assert_eq!(tasks, shown);
    }

    #[test]
    fn why_not_is_said() {
        let decisions =
            plan(Format::Xlsx, &Patterns::default().with(Pattern::HasSheets, true).with(Pattern::IsScanned, true));
        let of = |task| decisions.iter().find(|d| d.task == task).expect("a row a task");
        assert_eq!(of("extract:text").reason.as_deref(), Some("has_text_layer was not measured"));
        assert_eq!(of("ocr").outcome, Verdict::Deferred);
    }
}
