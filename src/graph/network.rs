//! The graph of the documents that a caller may read, in memory, for analyses of the whole of it.
use crate::{
    error::OrFail,
    store::{
        graph::{Edges, documents, facts, links},
        scope::Readable,
        triples::around::Moment,
    },
};
use sqlx::PgConnection;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use svc_client::{Code, Failure, wire::EdgeKind};
use svc_ids::DocumentId;
use svc_ranking::{Forest, Network, Stop};

/// Up to so many documents are named to the database when it looks for their edges; of more it is asked for all edges.
const FEW: usize = 20_000;

/// Which graph is read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// Only this document and what is under it.
    pub parent_id: Option<DocumentId>,
    pub edges: EdgeKind,
    pub moment: Moment,
    /// The most documents, and the most edges.
    pub most: usize,
}

/// A graph of documents.
#[derive(Debug)]
pub struct Graph {
    /// The documents by their numbers in the network, ascending.
    pub ids: Vec<i64>,
    /// Where each stands among its siblings.
    pub places: Vec<i64>,
    pub forest: Forest,
    pub network: Network,
}

impl Graph {
    /// Reads the graph of what the scope covers. A document under one that it does not cover is a root of it.
    pub async fn read(conn: &mut PgConnection, scope: &Readable, wanted: &Wanted) -> Result<Graph, Failure> {
        let most = wanted.most;
        let one_more = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
        let (mut ids, mut parents, mut places) = (Vec::new(), Vec::new(), Vec::new());
        documents(conn, scope, wanted.parent_id, one_more, |node| {
            ids.push(node.id);
            parents.push(node.parent_id);
            places.push(node.place);
        })
        .await
        .or_fail()?;
        if ids.len() > most {
            return Err(too_large("documents", wanted));
        }
        let number = |id: i64| ids.binary_search(&id).ok().and_then(|at| u32::try_from(at).ok());
        let parents = parents.into_iter().map(|parent| parent.and_then(number)).collect();
        let mut edges: Vec<(u32, u32)> = Vec::new();
        let mut take = |from: i64, to: i64| {
            edges.extend(number(from).zip(number(to)));
            edges.len() <= most
        };
        let which = Edges { moment: wanted.moment, from: (ids.len() <= FEW).then_some(ids.as_slice()) };
        if wanted.edges != EdgeKind::Links {
            facts(conn, scope, &which, &mut take).await.or_fail()?;
        }
        if wanted.edges != EdgeKind::Triples {
            links(conn, &which, &mut take).await.or_fail()?;
        }
        if edges.len() > most {
            return Err(too_large("facts and links between them", wanted));
        }
        let network = Network::new(ids.len(), edges);
        Ok(Graph { forest: Forest::new(parents), ids, places, network })
    }

    /// The number of a document in the network.
    pub fn number(&self, id: i64) -> Option<u32> {
        self.ids.binary_search(&id).ok().and_then(|at| u32::try_from(at).ok())
    }
}

/// 413: what there is too much of, and how to ask for less.
fn too_large(what: &str, wanted: &Wanted) -> Failure {
    let (of, how) = match wanted.parent_id {
        Some(_) => ("under this document", "name a document with fewer under it"),
        None => ("in the store", "name a document with fewer under it as `parent_id`"),
    };
    let most = wanted.most;
    Failure::new(Code::TooLarge, format!("an analysis takes at most {most} {what}, and there are more {of}"))
        .with("limit", most)
        .with("setting", "SVC_GRAPH_MAX_EDGES")
        .with("remedy", how)
}

/// Stops the computation on another thread once it is dropped.
struct Leash(Arc<AtomicBool>);

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Computes something on a thread of its own. It is told to stop when nobody waits for it any more.
pub async fn compute<T: Send + 'static>(
    work: impl FnOnce(Stop<'_>) -> Option<T> + Send + 'static,
) -> Result<T, Failure> {
    let is_over = Arc::new(AtomicBool::new(false));
    let _leash = Leash(Arc::clone(&is_over));
    let done = tokio::task::spawn_blocking(move || work(&|| is_over.load(Ordering::Relaxed)));
    let done = done.await.map_err(|error| Failure::new(Code::Internal, error))?;
    done.ok_or_else(|| Failure::new(Code::Internal, "an analysis that somebody waited for was stopped"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, time::Duration};

    #[tokio::test]
    async fn a_computation_that_nobody_waits_for_is_told_to_stop() {
        assert_eq!(compute(|stop| (!stop()).then_some(7)).await.ok(), Some(7));
        let (begun, began) = mpsc::channel();
        let (ended, end) = mpsc::channel();
        let work = tokio::spawn(compute(move |stop| {
            begun.send(()).ok()?;
            while !stop() {
                std::thread::yield_now();
            }
            ended.send(()).ok()
        }));
        tokio::task::spawn_blocking(move || began.recv()).await.unwrap().unwrap();
        work.abort();
        let ended = tokio::task::spawn_blocking(move || end.recv_timeout(Duration::from_secs(60))).await.unwrap();
        assert_eq!(ended, Ok(()));
    }
}
