//! Webhooks: addresses that are called when something happens, by the rules of Standard Webhooks.
use crate::{
    Failure,
    constraint::{Constraint, Form, constrain},
    operation::{Params, Wire},
    reply::Located,
    wire::{EventKind, kinds},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The webhook in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct WebhookPath {
    /// The webhook's id.
    pub id: i64,
}
impl Params for WebhookPath {}

/// The delivery in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct DeliveryPath {
    /// The delivery's id.
    pub id: i64,
}
impl Params for DeliveryPath {}

/// A webhook to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewWebhook {
    /// The https address that is called, 1 to 2,000 characters.
    pub url: String,
    /// Which kinds of events are sent, as in `GET /events`: kinds with commas between them, or `ingest.*`; all but `ingest.nodes` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<String>,
    /// Only what happens at or under this document, and what moves away from under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<i64>,
}
impl Wire for NewWebhook {
    constrain! {
        url: Constraint::Text(1, 2000, Form::NotBlank),
        kinds: Constraint::Text(1, 1000, Form::NotBlank);
        |new| new.kinds().map(|_| ())
    }
}

impl NewWebhook {
    /// The kinds that are wanted; an empty list means all.
    pub fn kinds(&self) -> Result<Vec<EventKind>, Failure> {
        self.kinds.as_deref().map_or(Ok(Vec::new()), kinds)
    }
}

/// A webhook, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WebhookResponse {
    pub id: i64,
    /// The principal that created it, by whose rights events are chosen; null for the owner.
    pub principal_id: Option<i64>,
    pub url: String,
    /// The kinds that are sent; all if empty.
    pub kinds: Vec<EventKind>,
    pub root: Option<i64>,
    pub created_at: DateTime<Utc>,
    /// Until when the secret from before the last rotation signs too.
    pub old_secret_until: Option<DateTime<Utc>>,
    /// Since when every delivery has failed; null if the last one succeeded.
    pub failing_since: Option<DateTime<Utc>>,
    /// When it was switched off, because the receiver is gone (410) or everything failed for a week. Create another one in its place.
    pub off_since: Option<DateTime<Utc>>,
}
impl Wire for WebhookResponse {}

/// A webhook with its secret, which is never shown again.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct IssuedWebhook {
    pub webhook: WebhookResponse,
    /// `whsec_` and the key in base64, with which the receiver verifies `webhook-signature`.
    pub secret: String,
}
impl Wire for IssuedWebhook {}
impl Located for IssuedWebhook {
    fn location(&self) -> String {
        format!("/webhooks/{}", self.webhook.id)
    }
}
impl std::fmt::Debug for IssuedWebhook {
    /// Without the secret, which must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedWebhook").field("webhook", &self.webhook).finish_non_exhaustive()
    }
}

/// Webhooks, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WebhookPage {
    pub webhooks: Vec<WebhookResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for WebhookPage {}

wire_words! {
    /// How far a delivery has come.
    DeliveryState {
        /// It waits for its next try.
        Pending = "pending",
        /// The receiver answered with 2xx.
        Delivered = "delivered",
        /// Every try failed.
        Dead = "dead",
        /// The creator of the webhook may no longer read what the event tells of, so it was not sent.
        Withheld = "withheld",
    }
}

/// One event for one webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DeliveryResponse {
    pub id: i64,
    pub webhook_id: i64,
    /// The header `webhook-id`, the same in every try.
    pub message_id: String,
    pub state: DeliveryState,
    /// The tries that were begun.
    pub tries: i32,
    /// When it is tried next.
    pub due_at: DateTime<Utc>,
    pub tried_at: Option<DateTime<Utc>>,
    /// The status of the last answer; null if none came.
    pub status: Option<i32>,
    /// Why the last try failed.
    pub error: Option<String>,
}
impl Wire for DeliveryResponse {}

/// Deliveries, page by page, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct DeliveryPage {
    pub deliveries: Vec<DeliveryResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for DeliveryPage {}
