//! The vectors of containers of files, which are the sums of what is under them.
use super::segments::outdate_sums;
use crate::store::{self, evidence::Evidence};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::{BTreeMap, HashMap};
use svc_ids::{DocumentId, RootId};

/// How the evidence describes the vector of a container.
pub const EMBEDDING: &str = "weighted sum of the children's vectors";

/// Puts into what is said of a container's rollup of how many of its children its vector is; `None` if it has no vector.
pub fn tell(rollup: &mut Value, vectors: Option<i64>, children: i64) {
    let Some(rollup) = rollup.as_object_mut() else { return };
    for name in ["without_vector", "embedding", "children_without_vector"] {
        rollup.remove(name);
    }
    let Some(vectors) = vectors else {
        rollup.insert("without_vector".to_owned(), "nothing under this node has a vector".into());
        return;
    };
    rollup.insert("embedding".to_owned(), EMBEDDING.into());
    if vectors < children {
        rollup.insert("children_without_vector".to_owned(), (children - vectors).into());
    }
}

/// Has the evidence of containers say of how many of their children their vectors are, as [`store::rollups::set_vectors`] returned it.
pub async fn tell_of(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    made: &HashMap<DocumentId, i64>,
) -> sqlx::Result<()> {
    let mut rollups = store::evidence::read_each(conn, containers, Evidence::Rollup).await?;
    let mut changed = Vec::new();
    for container in store::rollups::read(conn, containers).await? {
        let id = container.place.id();
        let Some(before) = rollups.remove(&id) else { continue };
        let mut rollup = before.clone();
        tell(&mut rollup, made.get(&id).copied(), container.children);
        if rollup != before {
            changed.push((id, Evidence::Rollup, rollup));
        }
    }
    store::evidence::record_all(conn, &changed).await?;
    // A move to another model may have said why they had none.
    let with_vector: Vec<DocumentId> = made.keys().copied().collect();
    store::evidence::remove_all(conn, &with_vector, Evidence::Embed).await
}

/// Makes the sums of settled containers of a file anew, because what is under them has other vectors: level by level, the deepest first, because the others
/// are made of theirs. Those that have another vector than a sum are left out. The caller has locked them.
pub async fn make_anew(
    badges: &BTreeMap<String, String>,
    conn: &mut PgConnection,
    levels: &[Vec<DocumentId>],
    file: RootId,
    model: &str,
) -> sqlx::Result<()> {
    for documents in levels {
        let containers = store::titles::sums(conn, documents).await?;
        let made = store::rollups::set_vectors(conn, &containers, model).await?;
        tell_of(conn, &containers, &made).await?;
        if containers.contains(&file.document()) {
            outdate_sums(badges, conn, &[file.document()]).await?;
        }
    }
    Ok(())
}
