//! Loads the facts that are missing, and finds the nodes that shapes are of.
use super::{FOCUS_NODES, Prepared, View};
use crate::{
    error::OrFail,
    rdf::shapes::{
        Constant, ShapeAt, Target,
        data::{Data, Missing, Name, Term, TermId},
        reading::RDF_TYPE,
        values::Literal,
    },
    store::{
        graph_nodes,
        triples::around::{self, AskedLiteral, Beside, End, Of},
    },
};
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashSet};
use svc_client::Failure;
use svc_ids::DocumentId;

/// Learns the IRIs of nodes.
pub async fn name(conn: &mut PgConnection, data: &mut Data, nodes: &[(usize, ShapeAt, TermId)]) -> Result<(), Failure> {
    let ids: Vec<DocumentId> = nodes
        .iter()
        .filter_map(|(_, _, term)| match data.is(*term) {
            Term::Node(id) => Some(*id),
            Term::Literal(_) | Term::Iri(_) => None,
        })
        .collect();
    for (id, iri, is_blank) in graph_nodes::names(conn, &ids).await.or_fail()? {
        data.name(id, Name { iri: Some(iri), is_blank });
    }
    Ok(())
}

/// Loads what is missing, at most `limit` facts; returns how many these were.
pub async fn load(
    conn: &mut PgConnection,
    view: &View,
    prepared: &Prepared,
    data: &mut Data,
    missing: &Missing,
    limit: usize,
) -> Result<usize, Failure> {
    data.expect(missing);
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut facts = 0;
    let node = |data: &Data, term: TermId| match data.is(term) {
        Term::Node(id) => Some(*id),
        Term::Literal(_) | Term::Iri(_) => None,
    };
    let predicate = |at: usize| prepared.predicates[at];
    // Where predicates lead, of some and of all.
    let (mut keys, mut asked) = (Vec::new(), Vec::new());
    for (term, at) in &missing.values {
        if let (Some(id), Some(predicate)) = (node(data, *term), predicate(*at)) {
            keys.push((*term, Some(*at)));
            asked.push((id, Some(predicate)));
        }
    }
    for term in &missing.all {
        if let Some(id) = node(data, *term) {
            keys.push((*term, None));
            asked.push((id, None));
        }
    }
    if !asked.is_empty() {
        for row in around::values(conn, &view.scope, &view.moment, &asked, most).await.or_fail()? {
            let Some((term, at)) = position(&row).and_then(|at| keys.get(at).copied()) else { continue };
            let (fact, predicate_id) = (row.triple_id, row.predicate_id);
            let end = end(data, row.end);
            match at {
                Some(at) => data.add(term, at, false, end, fact),
                None => data.add_to_all(term, (predicate_id, end, fact)),
            }
            facts += 1;
        }
    }
    // From where they lead to nodes and to literals.
    let (mut keys, mut asked) = (Vec::new(), Vec::new());
    let (mut literal_keys, mut literals) = (Vec::new(), Vec::new());
    for (term, at) in &missing.subjects {
        let Some(predicate_id) = predicate(*at) else { continue };
        match data.is(*term) {
            Term::Node(id) => {
                keys.push((*term, *at));
                asked.push((*id, predicate_id));
            }
            Term::Literal(Literal { value, datatype, language }) => {
                literal_keys.push((*term, *at));
                let (value, datatype, language) = (value.clone(), datatype.clone(), language.clone());
                literals.push(AskedLiteral { value, datatype, language, predicate_id });
            }
            Term::Iri(_) => {}
        }
    }
    let mut add = |data: &mut Data, keys: &[(TermId, usize)], rows: Vec<Beside>| {
        for row in rows {
            let Some((term, at)) = position(&row).and_then(|at| keys.get(at).copied()) else { continue };
            let fact = row.triple_id;
            let end = end(data, row.end);
            data.add(term, at, true, end, fact);
            facts += 1;
        }
    };
    if !asked.is_empty() {
        let rows = around::subjects(conn, &view.scope, &view.moment, &asked, most).await.or_fail()?;
        add(data, &keys, rows);
    }
    if !literals.is_empty() {
        let rows = around::subjects_of_literals(conn, &view.scope, &view.moment, &literals, most).await.or_fail()?;
        add(data, &literal_keys, rows);
    }
    Ok(facts)
}

fn position(row: &Beside) -> Option<usize> {
    usize::try_from(row.at - 1).ok()
}

/// The end of a fact among the terms.
fn end(data: &mut Data, end: End) -> TermId {
    match (end.id, end.literal) {
        (Some(id), _) => {
            if end.iri.is_some() {
                data.name(id, Name { iri: end.iri, is_blank: end.blank.unwrap_or_default() });
            }
            data.term(Term::Node(id))
        }
        (None, value) => data.term(Term::Literal(Literal {
            value: value.map_or_else(String::new, |value| value.0),
            datatype: end.datatype.unwrap_or_default(),
            language: end.language,
        })),
    }
}

/// The nodes that a shape is of, in a fixed order, one more than fit at most.
pub async fn focus(
    conn: &mut PgConnection,
    view: &View,
    prepared: &Prepared,
    root: ShapeAt,
    parent_id: Option<DocumentId>,
) -> Result<Vec<Term>, Failure> {
    let limit = i64::try_from(FOCUS_NODES + 1).unwrap_or(i64::MAX);
    let mut nodes: BTreeSet<DocumentId> = BTreeSet::new();
    let mut others: Vec<Term> = Vec::new();
    for target in &prepared.shapes.shapes[root].targets {
        let (subjects, objects) = match target {
            Target::Node(Constant::Iri(iri)) => {
                let ids: Vec<DocumentId> = prepared.iris[*iri].iter().copied().collect();
                match parent_id {
                    Some(parent) => nodes.extend(graph_nodes::under(conn, &ids, parent).await.or_fail()?),
                    None => nodes.extend(&ids),
                }
                if ids.is_empty() {
                    others.push(Term::Iri(*iri));
                }
                continue;
            }
            Target::Node(Constant::Literal(literal)) => {
                others.push(Term::Literal(literal.clone()));
                continue;
            }
            Target::Node(Constant::Blank) => continue,
            Target::Class(class) => {
                let classes: Vec<DocumentId> = prepared.classes.get(class).into_iter().flatten().copied().collect();
                (prepared.predicates[RDF_TYPE].map(|predicate| (predicate, Some(classes))), None)
            }
            Target::SubjectsOf(predicate) => (prepared.predicates[*predicate].map(|predicate| (predicate, None)), None),
            Target::ObjectsOf(predicate) => (None, prepared.predicates[*predicate]),
        };
        if let Some((predicate_id, classes)) = subjects {
            let of = Of { predicate_id, objects: classes.as_deref(), parent_id };
            nodes.extend(around::subjects_of(conn, &view.scope, &view.moment, &of, limit).await.or_fail()?);
        }
        if let Some(predicate_id) = objects {
            let of = Of { predicate_id, objects: None, parent_id };
            for end in around::objects_of(conn, &view.scope, &view.moment, &of, limit).await.or_fail()? {
                match (end.id, end.literal) {
                    (Some(id), _) => {
                        nodes.insert(id);
                    }
                    (None, value) => others.push(Term::Literal(Literal {
                        value: value.map_or_else(String::new, |value| value.0),
                        datatype: end.datatype.unwrap_or_default(),
                        language: end.language,
                    })),
                }
            }
        }
    }
    let mut seen = HashSet::new();
    others.retain(|term| seen.insert(term.clone()));
    Ok(nodes.into_iter().map(Term::Node).chain(others).collect())
}
