//! The words of the wire for the values of the other crates. These crates do not know the wire, so each has enums of
//! its own.
use svc_actors::{ErrorClass, Outcome};
use svc_client::wire::{AttemptOutcome, DetectedBy, ErrorType, Precision, SheetState, WriteMode};
use svc_formats::xlsx;

/// How a task's attempt ended that did not fail.
pub fn attempt_outcome(outcome: &Outcome) -> AttemptOutcome {
    match outcome {
        Outcome::Completed => AttemptOutcome::Completed,
        Outcome::Skipped { .. } => AttemptOutcome::Skipped,
        Outcome::LostLease => AttemptOutcome::LeaseLost,
        Outcome::Batched => AttemptOutcome::Batched,
    }
}

pub fn error_type(class: ErrorClass) -> ErrorType {
    match class {
        ErrorClass::Retryable => ErrorType::Retryable,
        ErrorClass::Permanent => ErrorType::Permanent,
        ErrorClass::Timeout => ErrorType::Timeout,
        ErrorClass::Dependency => ErrorType::Dependency,
    }
}

pub fn write_mode(mode: svc_actors::WriteMode) -> WriteMode {
    match mode {
        svc_actors::WriteMode::Itself => WriteMode::Itself,
        svc_actors::WriteMode::Children => WriteMode::Children,
        svc_actors::WriteMode::Subtree => WriteMode::Subtree,
    }
}

pub fn detected_by(by: svc_formats::DetectedBy) -> DetectedBy {
    match by {
        svc_formats::DetectedBy::MagicBytes => DetectedBy::MagicBytes,
        svc_formats::DetectedBy::ZipManifest => DetectedBy::ZipManifest,
        svc_formats::DetectedBy::ContentSniff => DetectedBy::ContentSniff,
    }
}

pub fn sheet_state(state: xlsx::SheetState) -> SheetState {
    match state {
        xlsx::SheetState::Visible => SheetState::Visible,
        xlsx::SheetState::Hidden => SheetState::Hidden,
        xlsx::SheetState::VeryHidden => SheetState::VeryHidden,
    }
}

pub fn precision(precision: svc_models::Precision) -> Precision {
    match precision {
        svc_models::Precision::F32 => Precision::F32,
        svc_models::Precision::Bf16 => Precision::Bf16,
        svc_models::Precision::Int8 => Precision::Int8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::{Serialize, de::DeserializeOwned};
    use std::fmt::Display;
    use svc_actors::{ActorState, Lane, Phase};
    use svc_client::wire;

    /// Each value is the same word on the wire, and the wire has no other.
    fn same<Ours: Serialize, Wires: Display + DeserializeOwned>(ours: &[Ours], known: &[&str]) {
        let words = ours.iter().map(|value| {
            let word = serde_json::to_value(value).unwrap();
            serde_json::from_value::<Wires>(word).unwrap().to_string()
        });
        assert_eq!(words.collect::<Vec<_>>(), known);
    }

    #[test]
    fn the_queue_and_the_wire_have_the_same_words() {
        same::<_, wire::TaskLane>(&Lane::ALL, wire::TaskLane::WORDS);
        use svc_actors::WriteMode::{Children, Itself, Subtree};
        let modes = [Itself, Children, Subtree];
        assert!(modes.into_iter().all(|mode| write_mode(mode).as_str() == mode.as_str()));
        same::<_, WriteMode>(&modes, WriteMode::WORDS);
        let classes = [ErrorClass::Retryable, ErrorClass::Permanent, ErrorClass::Timeout, ErrorClass::Dependency];
        assert!(classes.into_iter().all(|class| error_type(class).as_str() == class.as_str()));
        same::<_, ErrorType>(&classes, ErrorType::WORDS);
        let phases = [Phase::Claimed, Phase::Preparing, Phase::Committing, Phase::Stopping];
        same::<_, wire::TaskPhase>(&phases, wire::TaskPhase::WORDS);
        let states = [
            ActorState::Starting,
            ActorState::Running,
            ActorState::Draining,
            ActorState::Stopping,
            ActorState::Stopped,
        ];
        same::<_, wire::ActorState>(&states, wire::ActorState::WORDS);
    }

    #[test]
    fn what_readers_and_models_say_keeps_its_word() {
        use svc_formats::DetectedBy::{ContentSniff, MagicBytes, ZipManifest};
        for by in [MagicBytes, ZipManifest, ContentSniff] {
            assert_eq!(detected_by(by).as_str(), by.as_str());
        }
        for (name, value) in svc_models::Precision::NAMES {
            assert_eq!(precision(value).as_str(), name);
        }
        for state in [xlsx::SheetState::Visible, xlsx::SheetState::Hidden, xlsx::SheetState::VeryHidden] {
            assert_eq!(serde_json::to_value(sheet_state(state)).unwrap(), serde_json::to_value(state).unwrap());
        }
    }
}
