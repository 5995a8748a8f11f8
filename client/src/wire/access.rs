//! Principals, their tokens and grants, and the record of who changed them.
use crate::{
    Failure,
    constraint::{CURSOR, Constraint, Form, PAGE, constrain},
    operation::{Params, Wire},
    reply::Located,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The name of the owner wherever a principal's name may stand; no principal takes it.
pub const OWNER: &str = "owner";

/// How long a rotated token stays valid by default, in seconds.
pub const GRACE_SECONDS: u32 = 24 * 3600;
/// How long it stays valid at most, in seconds.
const LONGEST_GRACE: i64 = 7 * 24 * 3600;

const A_NAME: Constraint = Constraint::Text(1, 200, Form::NotBlank);

/// The principal in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct PrincipalPath {
    /// The principal's id.
    pub id: i64,
}
impl Params for PrincipalPath {}

/// The token in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct ApiTokenPath {
    /// The token's id.
    pub id: i64,
}
impl Params for ApiTokenPath {}

/// The grant in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct GrantPath {
    /// The document's id.
    pub id: i64,
    /// The principal's id.
    pub principal_id: i64,
}
impl Params for GrantPath {}

wire_words! {
    /// What a principal is.
    PrincipalKind { User = "user", Service = "service", }
    /// What a grant allows; to write includes to read.
    GrantRight { Read = "read", Write = "write", }
    /// What the audit records.
    AuditAct {
        PrincipalCreate = "principal.create",
        PrincipalUpdate = "principal.update",
        PrincipalDelete = "principal.delete",
        TokenIssue = "token.issue",
        TokenRotate = "token.rotate",
        TokenRevoke = "token.revoke",
        GrantPut = "grant.put",
        GrantDelete = "grant.delete",
        DocumentProtect = "document.protect",
        DocumentUnprotect = "document.unprotect",
        DocumentMove = "document.move",
        IngestCancel = "ingest.cancel",
        TaskRetry = "task.retry",
        TaskCancel = "task.cancel",
        TaskTypePause = "task_type.pause",
        TaskTypeResume = "task_type.resume",
        WebhookCreate = "webhook.create",
        WebhookRotate = "webhook.rotate",
        WebhookDelete = "webhook.delete",
        FeedReplay = "feed.replay",
        FeedDrop = "feed.drop",
        ContextCreate = "context.create",
        ContextUpdate = "context.update",
        ContextDelete = "context.delete",
        IndexCreate = "index.create",
        IndexUpdate = "index.update",
        IndexDelete = "index.delete",
        IndexRefresh = "index.refresh",
        IndexMemberAdd = "index.member.add",
        IndexMemberRemove = "index.member.remove",
        PresentationCreate = "presentation.create",
        PresentationUpdate = "presentation.update",
        PresentationDelete = "presentation.delete",
        PresentationReset = "presentation.reset",
        ModelMoveStart = "model_move.start",
        ModelMoveCancel = "model_move.cancel",
    }
}

/// Refuses a name that means somebody else where a principal is named: the owner, a principal's id, or a name that looks the same.
fn names_a_principal(name: Option<&str>) -> Result<(), Failure> {
    let reason = match name {
        Some(OWNER) => format!("`{OWNER}` names the owner: choose another name"),
        Some(name) if is_number(name.trim()) => "a number reads as the id of a principal: add a letter".to_owned(),
        Some(name) if name.trim() != name => "begins or ends with white space: leave it out".to_owned(),
        _ => return Ok(()),
    };
    Err(Failure::field("name", reason))
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// A principal to create.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewPrincipal {
    /// 1 to 200 characters, no number, without white space at its ends; no two principals have the same name.
    pub name: String,
    pub kind: PrincipalKind,
}
impl Wire for NewPrincipal {
    constrain! { name: A_NAME; |new| names_a_principal(Some(&new.name)) }
}

/// What to change of a principal; an absent field stays.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PrincipalChange {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<PrincipalKind>,
    /// While true, the principal's tokens open nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled: Option<bool>,
    /// The user of the message broker for whose messages this principal, which must be a service, answers; blank for none. See
    /// docs/feed.md.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amqp_user: Option<String>,
}
impl Wire for PrincipalChange {
    constrain! { name: A_NAME, amqp_user: Constraint::Text(0, 200, Form::Any); |change| names_a_principal(change.name.as_deref()) }
}

/// Which principals to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct PrincipalQuery {
    /// Only the principal with this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for PrincipalQuery {
    constrain! { name: A_NAME, cursor: CURSOR, limit: PAGE }
}

/// A caller besides the owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PrincipalResponse {
    pub id: i64,
    pub name: String,
    pub kind: PrincipalKind,
    pub disabled: bool,
    /// The user of the message broker for whose messages it answers; null for none.
    pub amqp_user: Option<String>,
    pub created_at: DateTime<Utc>,
}
impl Wire for PrincipalResponse {}
impl Located for PrincipalResponse {
    fn location(&self) -> String {
        format!("/access/principals/{}", self.id)
    }
}

/// Principals, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PrincipalPage {
    pub principals: Vec<PrincipalResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for PrincipalPage {}

/// A token to issue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewApiToken {
    /// What the token is for, 1 to 200 characters.
    pub name: String,
    /// When the token ends by itself; never if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}
impl Wire for NewApiToken {
    constrain! { name: A_NAME, expires_at: Constraint::Moment }
}

/// How to rotate a token.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ApiTokenRotation {
    /// How long the old token stays valid, in seconds: 0 to 604,800, which is 7 days; 86,400 by default, which is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_seconds: Option<u32>,
    /// When the new token ends by itself; by default as long from now on as the old one was to last, and never if that one never ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
}
impl Wire for ApiTokenRotation {
    constrain! { grace_seconds: Constraint::Whole(0, LONGEST_GRACE), expires_at: Constraint::Moment }
}

/// A token, without its secret, which is stored nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ApiTokenResponse {
    pub id: i64,
    pub principal_id: i64,
    pub name: String,
    /// The first characters of the secret, by which people recognise it.
    pub prefix: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    /// At most a minute behind; null if it was never used.
    pub last_used_at: Option<DateTime<Utc>>,
    /// When another token was issued in its place; it stays valid until it expires.
    pub rotated_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}
impl Wire for ApiTokenResponse {}

/// A new token with its secret, which is never shown again.
#[derive(Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct IssuedApiToken {
    pub token: ApiTokenResponse,
    /// Send it as `Authorization: Bearer <secret>`.
    pub secret: String,
}
impl Wire for IssuedApiToken {}
impl Located for IssuedApiToken {
    fn location(&self) -> String {
        format!("/access/tokens/{}", self.token.id)
    }
}
impl std::fmt::Debug for IssuedApiToken {
    /// Without the secret, which must not reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedApiToken").field("token", &self.token).finish_non_exhaustive()
    }
}

/// Tokens, page by page, by id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ApiTokenPage {
    pub tokens: Vec<ApiTokenResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for ApiTokenPage {}

/// What to grant.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewGrant {
    pub right: GrantRight,
}
impl Wire for NewGrant {}

/// The right of a principal on a document and everything under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct GrantResponse {
    pub document_id: i64,
    pub principal_id: i64,
    /// The principal's name.
    pub principal: String,
    pub right: GrantRight,
    pub created_at: DateTime<Utc>,
}
impl Wire for GrantResponse {}

/// Grants, page by page: those on a document by principal, those of a principal by document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct GrantPage {
    pub grants: Vec<GrantResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for GrantPage {}

/// A document that only the owner and its grantees reach, with everything under it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AccessRootResponse {
    pub document_id: i64,
    /// The nearest access root above it, whose grantees reach it too; null for none.
    pub above: Option<i64>,
    pub created_at: DateTime<Utc>,
}
impl Wire for AccessRootResponse {}

/// Who calls, and what it was granted. Besides, every caller reads what is under no access root.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct CallerResponse {
    /// Whether this is the owner, who reaches everything; then the rest is empty.
    pub owner: bool,
    pub principal: Option<PrincipalResponse>,
    /// The token that the call showed.
    pub token: Option<ApiTokenResponse>,
    /// The first 1,000 grants, by document.
    pub grants: Vec<GrantResponse>,
    /// Whether there are more grants than these.
    pub more_grants: bool,
}
impl Wire for CallerResponse {}

/// Which entries of the audit to list; an absent field does not filter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct AuditQuery {
    /// The principal that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal_id: Option<i64>,
    /// The document that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_id: Option<i64>,
    /// The task that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<i64>,
    /// The worker that held the task that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for AuditQuery {
    constrain! { cursor: CURSOR, limit: PAGE }
}

/// One act that the audit recorded.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditEntry {
    pub id: i64,
    pub at: DateTime<Utc>,
    /// The principal that acted; null for the owner.
    pub actor_id: Option<i64>,
    /// The name that it had then; `owner` for the owner.
    pub actor: String,
    pub act: AuditAct,
    /// The principal that was acted on.
    pub principal_id: Option<i64>,
    /// The name that it had then.
    pub principal: Option<String>,
    pub document_id: Option<i64>,
    /// What else is known of the act.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub detail: Map<String, Value>,
}

/// The audit, page by page, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditPage {
    pub entries: Vec<AuditEntry>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for AuditPage {}
