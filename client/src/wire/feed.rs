//! The bulk feed, as its operator sees it.
use crate::{
    Failure,
    constraint::{Constraint, Form, constrain},
    operation::Wire,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

wire_words! {
    /// How the bulk feed is.
    FeedState { NotConfigured = "not_configured", Away = "away", Takes = "takes", Pauses = "pauses", }
    /// What first became of a message of the bulk feed.
    MessageOutcome { Accepted = "accepted", Duplicate = "duplicate", Rejected = "rejected", }
}

/// The bulk feed at a glance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FeedResponse {
    /// `not_configured`: `SVC_AMQP_URL` is blank. `away`: the broker cannot be used. `takes`: messages are taken. `pauses`: more tasks are
    /// ready than `SVC_BULK_HIGH_WATER`.
    pub state: FeedState,
    /// The state in words.
    pub detail: String,
    /// What helps where the state is `not_configured` or `away`.
    pub remedy: Option<String>,
    /// Since when this process has its broker, or lacks it.
    pub since: Option<DateTime<Utc>>,
    /// The prefix, the broker and its virtual host; never the password.
    pub place: Option<String>,
    /// When the queues were read; null while they are not known.
    pub measured_at: Option<DateTime<Utc>>,
    /// The queues in the order in which a message may go through them, the one of what was given up last; empty while they are not known.
    pub queues: Vec<FeedQueue>,
    /// How many messages this process works on. A broker does not tell over AMQP how many of them other processes have.
    pub at_work: u64,
    /// Of the latest 10,000 messages.
    pub last_minute: FeedCounts,
    /// Of the latest 10,000 messages.
    pub last_hour: FeedCounts,
    /// The services that answer for a user of the broker, and the one for messages without a user: those first that uploaded most, 100 at most.
    pub uploaders: Vec<FeedUploader>,
    /// The latest 20, latest first.
    pub outcomes: Vec<FeedOutcome>,
    /// The first 25 of what was given up, as they lie in the last queue.
    pub dead: Vec<DeadLetter>,
    /// Why these could not be read, if they could not.
    pub dead_failure: Option<String>,
}
impl Wire for FeedResponse {}

/// A queue of the bulk feed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FeedQueue {
    pub name: String,
    /// Messages that nobody has been handed.
    pub ready: u32,
    /// How many take messages from it.
    pub consumers: u32,
}

/// How many messages had which outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FeedCounts {
    pub accepted: i64,
    pub duplicate: i64,
    pub rejected: i64,
}

/// A service that uploads what messages bring.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FeedUploader {
    pub principal_id: i64,
    pub name: String,
    /// The user of the broker for whose messages it answers; null if only for messages without a user.
    pub amqp_user: Option<String>,
    /// Whether it answers for messages without a user (`SVC_AMQP_PRINCIPAL`).
    pub is_default: bool,
    /// While true, its messages are rejected.
    pub disabled: bool,
    /// Of the latest 10,000 messages of the last hour.
    pub messages: i64,
}

/// What became of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FeedOutcome {
    pub at: DateTime<Utc>,
    pub message_id: String,
    pub outcome: MessageOutcome,
    /// The uploader; null if none could be told.
    pub principal: Option<String>,
    pub document_id: Option<i64>,
    pub title: Option<String>,
    /// Why it was rejected.
    pub code: Option<String>,
    pub detail: Option<String>,
}

/// A message that was given up. Its texts are its publisher's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DeadLetter {
    pub message_id: Option<String>,
    /// The user of the broker who published it.
    pub user: Option<String>,
    /// Why it was given up; null where the broker itself did so, after too many deliveries.
    pub code: Option<String>,
    pub detail: Option<String>,
    pub filename: Option<String>,
    pub sha256: Option<String>,
    /// The path or address of the file, if it is not in the message.
    pub source: Option<String>,
    pub parent_id: Option<i64>,
    /// The size of the message's body.
    pub bytes: u64,
}

/// Which messages that were given up: one by its id, those with a code, or all. Beside an id, `code` and `sha256` tell which of several messages with
/// this id is meant.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct DeadChoice {
    /// The first with this id, of those that have the given code and hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Those with this code. Beside an id it may be blank: the message has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Only beside an id: the SHA-256 of the file, as the list has it; blank for a message that names none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// All that lie there when the call begins.
    pub all: bool,
}
impl Wire for DeadChoice {
    constrain! {
        message_id: Constraint::Text(1, 255, Form::Any),
        code: Constraint::Text(0, 1000, Form::Any),
        sha256: Constraint::Text(0, 100, Form::Any);
        |choice| choice.names_one()
    }
}

impl DeadChoice {
    fn names_one(&self) -> Result<(), Failure> {
        let is_one = match (&self.message_id, &self.code, &self.sha256) {
            (Some(_), ..) => !self.all,
            (None, Some(code), None) => !self.all && !code.is_empty(),
            (None, None, None) => self.all,
            (None, _, Some(_)) => false,
        };
        match is_one {
            true => Ok(()),
            false => {
                let takes = "takes exactly one of message_id, code and all: true; with message_id also code and sha256";
                Err(Failure::field("message_id", takes))
            }
        }
    }

    /// Whether it is one of these: it has all that is given.
    pub fn has(&self, letter: &DeadLetter) -> bool {
        let is = |wanted: &Option<String>, given: &Option<String>| {
            wanted.as_deref().is_none_or(|wanted| wanted == given.as_deref().unwrap_or_default())
        };
        let names_some = self.message_id.is_some() || self.code.is_some();
        self.all
            || (names_some
                && is(&self.message_id, &letter.message_id)
                && is(&self.code, &letter.code)
                && is(&self.sha256, &letter.sha256))
    }
}

/// What a call did with messages that were given up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DeadTaken {
    /// How many left the queue.
    pub taken: i64,
    /// How many stay, because the broker or the rule of who may say who published them refused.
    pub refused: i64,
    /// Whether more may lie there: a call takes at most 1,000, and ends after ten seconds.
    pub more: bool,
}
impl Wire for DeadTaken {}
