//! Audits of the graph, all in one snapshot, so that they agree with each other.
mod bound;

use super::super::{lists::must_exist, triples::known};
use crate::{
    access::Caller,
    error::OrFail,
    rdf::shapes::validating::View,
    registry::Handle,
    service::Service,
    store::{
        self,
        graph::lint::{self, Covered, Found, Within},
        merges::{self, Sets},
        triples::around::Moment,
    },
};
use bound::Bound;
use chrono::{DateTime, Days, SubsecRound, Utc};
use sqlx::PgConnection;
use std::time::Instant;
use svc_client::{
    Call, Failure, ops,
    wire::{
        AuditResponse, CoverageThresholds, LintAudit, LintFinding, LintKind, LintRequest, LintResponse, predicate_name,
    },
};
use svc_ids::DocumentId;

/// All audits, in the order of their definition.
const AUDITS: [LintAudit; 6] = [
    LintAudit::Orphan,
    LintAudit::Contradiction,
    LintAudit::Staleness,
    LintAudit::Coverage,
    LintAudit::Unprotected,
    LintAudit::Rules,
];
/// The age at which a fact is stale, if the caller does not say.
const DAYS: u32 = 180;

impl Handle<ops::lint_graph> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::lint_graph>) -> Result<LintResponse, Failure> {
        let asked = call.body.0;
        let mut allowed = asked.allowed;
        let begun = Instant::now();
        let _place = self.admission.analysis().await?;
        let model = self.model().await.ok();
        let mut tx = store::transaction::begin_audit(&self.pool).await.or_fail()?;
        let parent_id = asked.parent_id.map(DocumentId);
        if let Some(id) = parent_id {
            must_exist(&mut tx, caller, id).await?;
        }
        let within = Within { scope: caller.readable(), parent_id, limit: i64::from(asked.limit.unwrap_or(100)) };
        let known_at = known(&mut tx, None).await?;
        let valid_at = Utc::now().trunc_subsecs(6);
        let is_asked = |audit: LintAudit| asked.audits.as_ref().is_none_or(|asked| asked.contains(&audit));
        let mut audits = Vec::new();
        for audit in AUDITS.into_iter().filter(|audit| is_asked(*audit)) {
            let begun = Instant::now();
            let view = View {
                scope: caller.readable(),
                moment: Moment { valid_at, known_at, asserted_only: false },
                base: self.settings.rdf_base.clone(),
            };
            let bound = Bound { view: &view, most: self.settings.rdf_max_triples };
            // Of too many merges none counts, and the audit says so.
            let merged = match audit {
                LintAudit::Contradiction => merges::all_sets(&mut tx, &within.scope, known_at).await.or_fail()?,
                _ => Some(Sets::default()),
            };
            let mut truncated = merged.is_none();
            let sets = merged.unwrap_or_default();
            let (mut count, mut findings) = match audit {
                LintAudit::Coverage => {
                    let covered = lint::coverage(&mut tx, &within, model.as_ref().map(|model| model.identity()))
                        .await
                        .or_fail()?;
                    uncovered(&covered, asked.coverage, within.limit)
                }
                _ => found(&mut tx, &within, audit, &asked, valid_at, &sets).await.or_fail()?,
            };
            if let LintAudit::Contradiction | LintAudit::Coverage = audit {
                let sets = (audit == LintAudit::Contradiction).then_some(&sets);
                let shaped = bound.audit(&mut tx, &within, sets).await?;
                (count, truncated) = (count + shaped.count, truncated || shaped.is_truncated);
                findings.extend(shaped.findings);
            }
            let exceeded = count > u64::from(allowed.of(audit).unwrap_or(0));
            audits.push(AuditResponse { audit, count, exceeded, findings, truncated, ms: milliseconds(begun) });
        }
        Ok(LintResponse { audits, valid_at, known_at, ms: milliseconds(begun) })
    }
}

fn milliseconds(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// What an audit finds, and how much there is.
async fn found(
    conn: &mut PgConnection,
    within: &Within,
    audit: LintAudit,
    asked: &LintRequest,
    now: DateTime<Utc>,
    sets: &Sets,
) -> sqlx::Result<(u64, Vec<LintFinding>)> {
    let days = asked.staleness.max_age_days.unwrap_or(DAYS);
    let before = now.checked_sub_days(Days::new(days.into())).unwrap_or(DateTime::<Utc>::MIN_UTC);
    let kinds = match audit {
        LintAudit::Orphan => vec![
            (LintKind::Entity, lint::entities(conn, within).await?),
            (LintKind::LonelyRoot, lint::lonely_roots(conn, within).await?),
            (LintKind::UnusedPredicate, lint::unused_predicates(conn, within).await?),
            (LintKind::Dangling, lint::dangling(conn, within).await?),
        ],
        LintAudit::Contradiction => {
            vec![
                (LintKind::Functional, lint::functional(conn, within, sets).await?),
                (LintKind::InverseFunctional, lint::inverse_functional(conn, within, sets).await?),
                (LintKind::DisjointPredicates, lint::disjoint_predicates(conn, within, sets).await?),
                (LintKind::DisjointClasses, lint::disjoint_classes(conn, within, sets).await?),
                (LintKind::Asymmetric, lint::asymmetric(conn, within, sets).await?),
                (LintKind::Irreflexive, lint::irreflexive(conn, within, sets).await?),
            ]
        }
        LintAudit::Staleness => vec![
            (LintKind::Old, lint::old(conn, within, now, before).await?),
            (LintKind::SourceChanged, lint::source_changed(conn, within).await?),
        ],
        LintAudit::Unprotected => vec![(LintKind::OpenRoot, lint::open_roots(conn, within).await?)],
        LintAudit::Rules => vec![(LintKind::GivenUp, lint::given_up(conn, within).await?)],
        LintAudit::Coverage => Vec::new(),
    };
    let total = kinds.iter().filter_map(|(_, found)| found.first()).map(|found| found.total).sum::<i64>();
    let findings = kinds.into_iter().flat_map(|(kind, found)| found.into_iter().map(move |found| shown(kind, found)));
    Ok((u64::try_from(total).unwrap_or(0), findings.collect()))
}

fn nothing(kind: LintKind) -> LintFinding {
    LintFinding {
        kind,
        document_id: None,
        triple_ids: Vec::new(),
        predicate: None,
        usetype: None,
        share: None,
        since: None,
    }
}

fn shown(kind: LintKind, found: Found) -> LintFinding {
    let Found { document_id, triple_ids, namespace, name, since, .. } = found;
    let predicate = namespace.zip(name).map(|(namespace, name)| predicate_name(&namespace, &name));
    LintFinding { document_id, triple_ids, predicate, since, ..nothing(kind) }
}

/// The usetypes of which too few documents can be found, and how many there are.
fn uncovered(covered: &[Covered], thresholds: CoverageThresholds, limit: i64) -> (u64, Vec<LintFinding>) {
    let CoverageThresholds { vectors, bm25, tokens, facts } = thresholds;
    let mut findings = Vec::new();
    for row in covered {
        for (kind, count, least, is_due) in [
            (LintKind::Vectors, row.vectors, vectors.unwrap_or(1.0), true),
            (LintKind::Bm25, row.bm25, bm25.unwrap_or(1.0), row.has_index),
            (LintKind::Tokens, row.tokens, tokens.unwrap_or(0.0), true),
            (LintKind::Facts, row.facts, facts.unwrap_or(0.0), true),
        ] {
            let share = count as f64 / row.all.max(1) as f64;
            if is_due && share < least {
                findings.push(LintFinding { usetype: Some(row.usetype.clone()), share: Some(share), ..nothing(kind) });
            }
        }
    }
    findings.sort_by_key(|finding| finding.kind.as_str());
    let count = findings.len() as u64;
    findings.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    (count, findings)
}
