//! How far along its document a task is, on the way from bytes to a settled document.

/// Task types in the order of an ingestion: the type, the kind of actor that runs it, and the stage. An unlisted type
/// is run by an actor of its own name.
const STAGES: &[(&str, &str, i32)] = &[
    ("probe", "probe", 0),
    ("extract:text", "extract", 1),
    ("extract:tables", "extract", 1),
    ("extract:images", "extract", 1),
    ("ocr", "ocr", 1),
    ("structure:declared", "structure", 2),
    ("structure:inferred", "structure", 2),
    ("structure:sheets", "structure", 2),
    ("extract:members", "extract", 3),
    ("profile:sheet", "profile:sheet", 3),
    ("extract:sheet", "extract", 4),
    // Facts are no step of an ingestion, so they come after the summaries by which files settle.
    ("extract:facts", "facts", 4),
    ("embed", "embed", 5),
    ("embed:titles", "embed", 5),
    ("reembed", "embed", 5),
    // Nor is a tree of summaries one; it takes its turn among what is embedded.
    ("raptor", "raptor", 5),
    ("structure:semantic", "structure", 6),
    ("summarize", "rollup", 7),
    ("summarize:llm", "rollup", 8),
];

/// How far along its document is when a task of this type runs, 0 to 9. Of two equal uploads the one further along goes
/// first; an unlisted type has stage 0.
pub fn stage(task_type: &str) -> i32 {
    STAGES.iter().find(|(known, ..)| *known == task_type).map_or(0, |(.., stage)| *stage)
}

/// The kind of actor that runs a task of this type.
pub fn kind(task_type: &str) -> &str {
    STAGES.iter().find(|(known, ..)| *known == task_type).map_or(task_type, |(_, kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_one_digit_and_never_falls_on_the_way() {
        // The upload's priority takes the tens; see the SQL function `task_priority`.
        assert!(STAGES.iter().all(|(.., stage)| (0..10).contains(stage)));
        let way = ["probe", "extract:text", "structure:declared", "embed", "summarize"].map(stage);
        assert!(way.is_sorted_by(|a, b| a < b), "{way:?}");
        let sheets = ["probe", "structure:sheets", "profile:sheet", "extract:sheet", "embed", "summarize"].map(stage);
        assert!(sheets.is_sorted_by(|a, b| a < b), "{sheets:?}");
        assert_eq!(stage("from_the_future"), 0);
    }

    #[test]
    fn what_only_adds_to_settled_files_goes_before_no_step_of_an_ingestion() {
        assert!(stage("extract:facts") < stage("summarize:llm"), "in the lane of language models");
        assert!(stage("raptor") <= stage("embed"), "in the lane of the model");
    }

    #[test]
    fn the_kinds_are_those_of_an_ingestion_and_other_types_have_their_own_name() {
        let kinds =
            ["probe", "extract:sheet", "structure:sheets", "embed", "summarize", "profile:sheet", "test"].map(kind);
        assert_eq!(kinds, ["probe", "extract", "structure", "embed", "rollup", "profile:sheet", "test"]);
    }
}
