//! What is wrong with a graph: audits of the facts and documents that a caller may read.
use crate::{
    constraint::{Constraint, PAGE, constrain},
    operation::Wire,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

const DAYS: Constraint = Constraint::Whole(0, 100_000);
const SHARE: Constraint = Constraint::Number(0.0, 1.0);
const FINDINGS: Constraint = Constraint::Whole(0, 1_000_000_000);

wire_words! {
    /// What an audit looks for: what hangs on nothing (`orphan`), facts that cannot be true together (`contradiction`), facts that nobody has
    /// confirmed for long (`staleness`), documents that cannot be found (`coverage`), trees that every principal may read (`unprotected`), and
    /// rules that were given up (`rules`).
    LintAudit {
        Orphan = "orphan", Contradiction = "contradiction", Staleness = "staleness", Coverage = "coverage", Unprotected = "unprotected",
        Rules = "rules",
    }
    /// What was found. Orphans: an `entity` without facts and links, a root without children, facts and links (`lonely_root`), a predicate
    /// that somebody created and that has no facts (`unused_predicate`), a fact whose ends or source are gone (`dangling`). Contradictions: two objects of a functional predicate (`functional`),
    /// two subjects of an inverse functional one (`inverse_functional`), two predicates that exclude each other (`disjoint_predicates`) or two
    /// classes that do (`disjoint_classes`), an asymmetric predicate in both directions (`asymmetric`), and an irreflexive one from a document
    /// to itself (`irreflexive`), and more values than a bound shape allows (`max_count`). Staleness: a dynamic fact whose last support is too old (`old`), and one whose cited text has changed since
    /// (`source_changed`). Coverage: too few documents of a usetype with a vector (`vectors`), an entry in a BM25 index (`bm25`), token
    /// vectors (`tokens`) or facts that cite them (`facts`), and a node that lacks values which a bound shape requires (`min_count`). Unprotected: a root (`open_root`). Rules: a predicate from whose facts and those of the predicates that it depends on
    /// more follows than SVC_RULES_MAX_DERIVED allows (`given_up`).
    LintKind {
        Entity = "entity", LonelyRoot = "lonely_root", UnusedPredicate = "unused_predicate", Dangling = "dangling",
        Functional = "functional", InverseFunctional = "inverse_functional", DisjointPredicates = "disjoint_predicates",
        DisjointClasses = "disjoint_classes", Asymmetric = "asymmetric", Irreflexive = "irreflexive",
        MaxCount = "max_count",
        Old = "old", SourceChanged = "source_changed",
        Vectors = "vectors", Bm25 = "bm25", Tokens = "tokens", Facts = "facts", MinCount = "min_count",
        OpenRoot = "open_root",
        GivenUp = "given_up",
    }
}

/// When a fact is stale.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct StalenessThresholds {
    /// A dynamic fact is stale if it was recorded and last cited, and the texts that it cites last changed, more than so many days ago; 180 by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 100_000))]
    pub max_age_days: Option<u32>,
}

/// When too few documents are covered.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct CoverageThresholds {
    /// The share of the settled documents with text of a usetype that should have a vector of the service's model; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1))]
    pub vectors: Option<f64>,
    /// The share that should be in a BM25 index; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1))]
    pub bm25: Option<f64>,
    /// The share that should have token vectors; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1))]
    pub tokens: Option<f64>,
    /// The share that believed facts should cite; 0 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1))]
    pub facts: Option<f64>,
}

/// How many findings each audit may have before it has too many; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AllowedFindings {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub orphan: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub contradiction: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub staleness: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub coverage: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub unprotected: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1_000_000_000))]
    pub rules: Option<u32>,
}
impl AllowedFindings {
    /// The number of an audit, to read or to set; `None` if the caller does not say.
    pub fn of(&mut self, audit: LintAudit) -> &mut Option<u32> {
        match audit {
            LintAudit::Orphan => &mut self.orphan,
            LintAudit::Contradiction => &mut self.contradiction,
            LintAudit::Staleness => &mut self.staleness,
            LintAudit::Coverage => &mut self.coverage,
            LintAudit::Unprotected => &mut self.unprotected,
            LintAudit::Rules => &mut self.rules,
        }
    }
}

/// Which audits to run, and from where on something counts as wrong.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct LintRequest {
    /// All of them by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audits: Option<Vec<LintAudit>>,
    /// Only documents at and under this one, and facts about them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    #[serde(default)]
    pub staleness: StalenessThresholds,
    #[serde(default)]
    pub coverage: CoverageThresholds,
    #[serde(default)]
    pub allowed: AllowedFindings,
    /// The most findings that each audit shows of each kind, 1 to 1,000; 100 by default. All are counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Wire for LintRequest {
    constrain! { limit: PAGE; |lint| {
        DAYS.check("staleness.max_age_days", &lint.staleness.max_age_days)?;
        SHARE.check("coverage.vectors", &lint.coverage.vectors)?;
        SHARE.check("coverage.bm25", &lint.coverage.bm25)?;
        SHARE.check("coverage.tokens", &lint.coverage.tokens)?;
        SHARE.check("coverage.facts", &lint.coverage.facts)?;
        FINDINGS.check("allowed.orphan", &lint.allowed.orphan)?;
        FINDINGS.check("allowed.contradiction", &lint.allowed.contradiction)?;
        FINDINGS.check("allowed.staleness", &lint.allowed.staleness)?;
        FINDINGS.check("allowed.coverage", &lint.allowed.coverage)?;
        FINDINGS.check("allowed.unprotected", &lint.allowed.unprotected)?;
        FINDINGS.check("allowed.rules", &lint.allowed.rules)
    } }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LintFinding {
    pub kind: LintKind,
    /// The document at fault, or the one that the facts are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_id: Option<i64>,
    /// The facts that are wrong together, or the stale one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub triple_ids: Vec<i64>,
    /// The predicate at fault, as `namespace:name`, or the path of a bound shape that is no single predicate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicate: Option<String>,
    /// The usetype of which too few documents are covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usetype: Option<String>,
    /// The share that is covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
    /// When a stale fact had its last support.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
}

/// What one audit found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AuditResponse {
    pub audit: LintAudit,
    /// How many findings there are, also of those that are not shown.
    pub count: u64,
    /// Whether there are more than `allowed` accepts of this audit.
    pub exceeded: bool,
    /// By kind, then by the ids of what is at fault.
    pub findings: Vec<LintFinding>,
    /// Whether bound shapes were not held against all nodes, because that took too long or there was too much, or whether there are so many merges
    /// that none counts; absent if nothing was left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// How long the audit took, in milliseconds.
    pub ms: u64,
}

/// What is wrong with a graph at one moment, of which all audits are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LintResponse {
    /// In the order of the audits' definition.
    pub audits: Vec<AuditResponse>,
    /// The moment in the world that the facts were read at.
    pub valid_at: DateTime<Utc>,
    /// The last moment that the store had recorded something at.
    pub known_at: DateTime<Utc>,
    pub ms: u64,
}
impl Wire for LintResponse {}
