//! Holds all nodes that shapes are of against them, at one moment, as far as a caller may read. Nodes are looked at some at a time: what is
//! not at hand is noticed, loaded in one statement for all of them, and they are looked at again.
mod classes;
mod loading;

use super::{
    Constraint, IriAt, ShapeAt, Shapes, Target,
    checking::{Checker, RESULTS, Until},
    data::{Data, Term, TermId},
    reading::RDF_TYPE,
    report,
    violation::Violation,
};
use crate::{
    graph::named,
    store::{scope::Readable, triples::around::Moment},
};
use classes::{closed, with_iris};
use loading::{focus, load, name};
use sqlx::PgConnection;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};
use svc_client::{
    Code, Failure,
    wire::{ShapeResult, ValidationLimit},
};
use svc_ids::{DocumentId, PredicateId};
use tokio_util::sync::CancellationToken;

const SUB_CLASS_OF: &str = "http://www.w3.org/2000/01/rdf-schema#subClassOf";
/// The most nodes that are looked at in one validation.
const FOCUS_NODES: usize = 100_000;
/// The most facts that a path may have one after the other.
const DEPTH: usize = 30;
/// How long a validation may take.
const TIME: Duration = Duration::from_secs(10);
/// How many nodes are looked at together, each as often as there are shapes.
const TOGETHER: usize = 10_000;
/// The most facts around the nodes that are looked at together.
const FACTS: usize = 500_000;

/// Whose facts are looked at, and when.
#[derive(Clone, Debug)]
pub struct View {
    pub scope: Readable,
    pub moment: Moment,
    /// What the IRIs of this store begin with.
    pub base: String,
}

/// What became of a validation.
#[derive(Debug, Default)]
pub struct Outcome {
    pub results: Vec<ShapeResult>,
    pub focus_nodes: usize,
    pub truncated: Option<ValidationLimit>,
}

impl Outcome {
    /// What comes of a look for which there was no time.
    pub fn too_late() -> Outcome {
        Outcome { truncated: Some(ValidationLimit::Time), ..Outcome::default() }
    }

    /// What comes of a look that failed for want of time, or because there is too much to look at. Any other failure stays one.
    pub fn cut_short(failure: Failure) -> Result<Outcome, Failure> {
        let truncated = match failure.code {
            Code::TimedOut => ValidationLimit::Time,
            Code::TooLarge => ValidationLimit::Facts,
            _ => return Err(failure),
        };
        Ok(Outcome { truncated: Some(truncated), ..Outcome::default() })
    }
}

/// Shapes with everything of the store that they name.
pub struct Prepared {
    shapes: Arc<Shapes>,
    predicates: Vec<Option<PredicateId>>,
    iris: Vec<HashSet<DocumentId>>,
    classes: BTreeMap<IriAt, HashSet<DocumentId>>,
}

impl Prepared {
    /// Finds what shapes name.
    pub async fn new(conn: &mut PgConnection, view: &View, shapes: Arc<Shapes>) -> Result<Prepared, Failure> {
        let mut names: Vec<&str> = shapes.predicates.iter().map(String::as_str).collect();
        names.push(SUB_CLASS_OF);
        let found = named::resolve(conn, &Readable::everything(), &view.base, &names).await?;
        let predicates: Vec<Option<PredicateId>> =
            shapes.predicates.iter().map(|iri| found.get(iri.as_str()).copied()).collect();
        let iris = with_iris(conn, view, &shapes.iris).await?;
        let wanted: BTreeSet<IriAt> = classes(&shapes).collect();
        let wanted: BTreeMap<IriAt, &HashSet<DocumentId>> =
            wanted.into_iter().map(|class| (class, &iris[class])).collect();
        let classes = match found.get(SUB_CLASS_OF) {
            Some(predicate) => closed(conn, view, *predicate, &wanted).await?,
            None => wanted.into_iter().map(|(class, ids)| (class, ids.clone())).collect(),
        };
        Ok(Prepared { shapes, predicates, iris, classes })
    }

    fn data(&self) -> Data {
        Data::new(self.predicates.clone(), self.iris.clone(), self.classes.clone())
    }
}

/// The classes that targets and constraints name.
fn classes(shapes: &Shapes) -> impl Iterator<Item = IriAt> + '_ {
    shapes.shapes.iter().flat_map(|shape| {
        let targets = shape.targets.iter().filter_map(|target| match target {
            Target::Class(class) => Some(*class),
            _ => None,
        });
        let constraints = shape.constraints.iter().filter_map(|constraint| match constraint {
            Constraint::Class(class) => Some(*class),
            _ => None,
        });
        targets.chain(constraints)
    })
}

/// Holds all nodes that shapes are of, at and under a document if one is named, against the shapes. If it ends for want of time, a statement may
/// still be under way: the transaction is to be dropped then.
pub async fn validate(
    conn: &mut PgConnection,
    view: &View,
    shapes: Arc<Shapes>,
    parent_id: Option<DocumentId>,
) -> Result<Outcome, Failure> {
    let deadline = Instant::now() + TIME;
    let mut outcome = Outcome::default();
    let looking = async {
        let prepared = Prepared::new(conn, view, shapes).await?;
        validate_prepared(conn, view, &prepared, parent_id, deadline, &mut outcome).await
    };
    match tokio::time::timeout_at(deadline.into(), looking).await {
        Ok(done) => done?,
        Err(_) => outcome.truncated = Some(ValidationLimit::Time),
    }
    Ok(outcome)
}

/// Does so with shapes whose names were found, until a moment, and adds of each part what came of it.
pub async fn validate_prepared(
    conn: &mut PgConnection,
    view: &View,
    prepared: &Prepared,
    parent_id: Option<DocumentId>,
    deadline: Instant,
    outcome: &mut Outcome,
) -> Result<(), Failure> {
    for root in &prepared.shapes.roots {
        let mut focus = focus(conn, view, prepared, *root, parent_id).await?;
        let room = FOCUS_NODES - outcome.focus_nodes;
        if focus.len() > room {
            focus.truncate(room);
            outcome.truncated = Some(ValidationLimit::FocusNodes);
        }
        for together in focus.chunks(TOGETHER) {
            if Instant::now() >= deadline {
                outcome.truncated = Some(ValidationLimit::Time);
                return Ok(());
            }
            let nodes: Vec<(ShapeAt, Term)> = together.iter().map(|term| (*root, term.clone())).collect();
            let looked = look(conn, view, prepared, nodes, Look { deadline, only_targets: false }).await?;
            outcome.focus_nodes += together.len();
            outcome.results.extend(looked.results);
            outcome.truncated = looked.truncated.or(outcome.truncated);
            if outcome.results.len() > RESULTS {
                outcome.results.truncate(RESULTS);
                outcome.truncated = Some(ValidationLimit::Results);
                return Ok(());
            }
        }
        if outcome.truncated.is_some() {
            break;
        }
    }
    Ok(())
}

/// Holds nodes against the shapes that are of them, until a moment.
pub async fn validate_nodes(
    conn: &mut PgConnection,
    view: &View,
    prepared: &Prepared,
    nodes: &[DocumentId],
    deadline: Instant,
) -> Result<Outcome, Failure> {
    let look_for = Look { deadline, only_targets: true };
    let mut outcome = Outcome::default();
    for together in nodes.chunks((TOGETHER / prepared.shapes.roots.len().max(1)).max(1)) {
        if Instant::now() >= deadline {
            outcome.truncated = Some(ValidationLimit::Time);
            break;
        }
        let roots = prepared.shapes.roots.iter();
        let pairs = roots.flat_map(|root| together.iter().map(|id| (*root, Term::Node(*id)))).collect();
        let looked = look(conn, view, prepared, pairs, look_for).await?;
        outcome.focus_nodes += together.len();
        outcome.results.extend(looked.results);
        outcome.truncated = looked.truncated.or(outcome.truncated);
    }
    Ok(outcome)
}

/// How nodes are looked at.
#[derive(Clone, Copy)]
struct Look {
    deadline: Instant,
    /// Only if the shape is of the node.
    only_targets: bool,
}

/// Looks at nodes until all that is asked for is at hand. Whoever drops this ends the look on its thread too.
async fn look(
    conn: &mut PgConnection,
    view: &View,
    prepared: &Prepared,
    nodes: Vec<(ShapeAt, Term)>,
    how: Look,
) -> Result<Outcome, Failure> {
    let until = Until { deadline: how.deadline, cancelled: CancellationToken::new() };
    let _cancelled_if_dropped = until.cancelled.clone().drop_guard();
    let mut data = prepared.data();
    let mut open: Vec<(usize, ShapeAt, TermId)> =
        nodes.into_iter().enumerate().map(|(at, (shape, term))| (at, shape, data.term(term))).collect();
    name(conn, &mut data, &open).await?;
    let mut found: BTreeMap<usize, Vec<Violation>> = BTreeMap::new();
    let (mut outcome, mut facts) = (Outcome::default(), 0);
    for round in 0..=DEPTH {
        let (shapes, base, until) = (Arc::clone(&prepared.shapes), view.base.clone(), until.clone());
        let work = tokio::task::spawn_blocking(move || {
            let (mut left, mut count) = (Vec::new(), 0);
            let checker = Checker::new(&shapes, &data, &base, RDF_TYPE, until);
            let mut done = Vec::new();
            for (at, shape, node) in open {
                if count > RESULTS {
                    break;
                }
                data.look_anew();
                let is_meant = !how.only_targets || checker.is_target(shape, node);
                let violations = if is_meant { checker.violations(shape, node) } else { Vec::new() };
                if checker.stopped().is_some() {
                    // What was looked at last was not looked at to its end.
                    break;
                }
                match data.lacks() {
                    true => left.push((at, shape, node)),
                    false => {
                        count += violations.len();
                        done.push((at, violations));
                    }
                }
            }
            let stopped = if count > RESULTS { Some(ValidationLimit::Results) } else { checker.stopped() };
            drop(checker);
            let missing = data.take_missing();
            (data, done, left, missing, stopped)
        });
        let (done, left, missing, stopped);
        (data, done, left, missing, stopped) = work.await.map_err(|error| Failure::new(Code::Internal, error))?;
        found.extend(done);
        if stopped.is_some() {
            outcome.truncated = stopped;
            break;
        }
        open = left;
        if open.is_empty() {
            break;
        }
        if round == DEPTH {
            outcome.truncated = Some(ValidationLimit::Depth);
            break;
        }
        facts += load(conn, view, prepared, &mut data, &missing, FACTS - facts).await?;
        if facts >= FACTS {
            outcome.truncated = Some(ValidationLimit::Facts);
            break;
        }
    }
    let violations: Vec<Violation> = found.into_values().flatten().collect();
    let iris = report::predicates(conn, view, &violations).await?;
    outcome.results = report::results(&prepared.shapes, &data, &view.base, &iris, violations);
    Ok(outcome)
}
