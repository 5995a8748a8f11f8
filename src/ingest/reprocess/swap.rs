//! The transaction that puts a generation in the place of a file's tree. While it runs nothing is created, so it leaves to a later one what
//! takes long: the old tree is set aside in the generation's place, out of everybody's reach, and deleted as one that was given up.
use super::{EndError, discard, outcome};
use crate::{
    core::Core,
    ingest::{raptor, segments::outdate_sums, titles},
    store::{
        self,
        ingest_nodes::Frontier,
        places::Place,
        reprocess::{Descendant, Generation, Link, LostBinding, LostMerge, ShownFact},
        scope::Readable,
        triples::follow::{self, Counterpart},
    },
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::{
    collections::{HashMap, HashSet},
    slice,
};
use svc_actors::WriteMode;
use svc_client::wire::{EventKind, Settled};
use svc_ids::{DocumentId, RootId};

/// How many lost links, facts, bindings and merges the evidence lists, of each.
const LISTED: usize = 100;

/// The tree that a file has.
pub struct Old {
    /// What tasks made of the file, and what was made of that. The exchange sets these nodes aside, to be deleted.
    pub nodes: Vec<DocumentId>,
    /// How many of these failed.
    failed: i64,
    /// The parent of each of them.
    parents: HashMap<DocumentId, DocumentId>,
    guests: Vec<Guest>,
    /// How many nodes under the file not every reader of it may know of. They are closed, and stay.
    hidden: i64,
    /// How many of these failed.
    hidden_failed: i64,
}

/// What a caller put under a node that goes.
struct Guest {
    id: DocumentId,
    under: DocumentId,
    is_shown: bool,
}

impl Old {
    pub async fn read(conn: &mut PgConnection, file: &Place) -> sqlx::Result<Old> {
        let mut old = Old {
            nodes: Vec::new(),
            failed: 0,
            parents: HashMap::new(),
            guests: Vec::new(),
            hidden: 0,
            hidden_failed: 0,
        };
        // Each node comes after the one above it. What is under a caller's document is the caller's too.
        for Descendant { id, parent_id, is_made, has_failed, is_shown } in
            store::reprocess::descendants(conn, file).await?
        {
            if !is_shown {
                old.hidden += 1;
                old.hidden_failed += i64::from(has_failed);
            }
            let goes_above = old.parents.contains_key(&parent_id);
            if is_made && (goes_above || parent_id == file.id()) {
                old.nodes.push(id);
                old.failed += i64::from(has_failed);
                old.parents.insert(id, parent_id);
            } else if goes_above {
                old.guests.push(Guest { id, under: parent_id, is_shown });
            }
        }
        Ok(old)
    }

    /// The new parent of what was under a node that goes: the node's counterpart, or that of the nearest node above that has one, or
    /// else the file.
    fn parent(&self, mut under: DocumentId, counterparts: &HashMap<DocumentId, DocumentId>) -> DocumentId {
        loop {
            match (counterparts.get(&under), self.parents.get(&under)) {
                (Some(new), _) => return *new,
                (None, Some(above)) => under = *above,
                (None, None) => return under,
            }
        }
    }
}

/// Puts a generation in the place of its file's tree; if it would lose something that the tree has, it is discarded instead.
pub async fn swap(core: &Core, id: RootId) -> Result<(), EndError> {
    // Nothing is created under the old tree meanwhile.
    let mut tx = store::transaction::begin_moving(&core.pool).await?;
    let conn = &mut *tx;
    let Some(file) = store::reprocess::file_of(conn, id).await? else { return Ok(()) };
    store::locks::files_around(conn, file).await?;
    let Some((file, generation)) = store::reprocess::lock(conn, file, id).await? else { return Ok(()) };
    if generation.settled.0 != Settled::Settled {
        return Ok(());
    }
    for place in [&file, &generation.place()] {
        store::reservations::hold_for_edit(conn, place, WriteMode::Subtree).await?;
    }
    let old = Old::read(conn, &file).await?;
    match hindrance(conn, &file, &generation, &old).await? {
        Some(reason) => discard(conn, &file, &generation, reason).await?,
        None => {
            let old = match forget_summaries(conn, &file, &old).await? {
                0 => old,
                // Their documents are gone.
                _ => Old::read(conn, &file).await?,
            };
            exchange(core, conn, &file, &generation, old).await?;
        }
    }
    store::reservations::let_go_on(conn, &file).await?;
    Ok(tx.commit().await?)
}

/// Removes the trees of summaries that tell of the old tree: those above the file, and those of the file and its parts. Returns how many
/// there were.
async fn forget_summaries(conn: &mut PgConnection, file: &Place, old: &Old) -> Result<usize, EndError> {
    let over = raptor::forget_over(conn, slice::from_ref(file)).await?;
    let holders: Vec<DocumentId> = old.nodes.iter().copied().chain([file.id()]).collect();
    let trees = store::raptor::trees(conn, &holders).await?;
    for tree in &trees {
        raptor::remove(conn, tree).await?;
    }
    Ok(over + trees.len())
}

/// Why a generation may not take its place.
async fn hindrance(
    conn: &mut PgConnection,
    file: &Place,
    generation: &Generation,
    old: &Old,
) -> sqlx::Result<Option<Value>> {
    let roots = store::reprocess::access_roots(conn, &old.nodes).await?;
    if !roots.is_empty() {
        // Not every reader of the file may know of them.
        tracing::info!(root.id = generation.id.0, access_roots = ?roots, "parts of a file became access roots while it was being reprocessed");
        let message = "meanwhile parts of the file became access roots, which no part of a new tree would be";
        return Ok(Some(json!({"code": "access_roots", "message": message})));
    }
    if store::reprocess::has_failed(conn, file).await? {
        // There is no tree to lose.
        return Ok(None);
    }
    let failed = store::ingest_nodes::frontier(conn, generation.id).await?.map_or(0, |counts| counts.failed);
    if failed > old.failed {
        let message = format!("{failed} nodes of the new tree failed, and {} of the old one", old.failed);
        return Ok(Some(json!({"code": "more_failed_parts", "message": message})));
    }
    Ok(None)
}

async fn exchange(
    core: &Core,
    conn: &mut PgConnection,
    file: &Place,
    generation: &Generation,
    old: Old,
) -> Result<(), EndError> {
    let id = file.id();
    let everything = Readable::everything();
    let before = store::ingest_nodes::count_by_path(conn, &everything, id).await?;
    let counterparts = store::reprocess::counterparts(conn, generation, &old.nodes).await?;
    store::reprocess::put_in_place(conn, file, generation).await?;

    let links = store::reprocess::links(conn, file, &old.nodes).await?;
    let goes: HashSet<DocumentId> = old.nodes.iter().copied().collect();
    let end = |node: DocumentId| if goes.contains(&node) { counterparts.get(&node).copied() } else { Some(node) };
    let (mut redirected, mut followed, mut lost) = (Vec::new(), 0, Vec::new());
    for link in links {
        match end(link.source_id).zip(end(link.target_id)) {
            Some((source, target)) => {
                followed += usize::from(link.is_shown);
                redirected.push((link.id, source, target));
            }
            None => lost.push(link),
        }
    }
    store::reprocess::redirect(conn, file, &redirected).await?;
    let mut moves = Vec::new();
    for guest in &old.guests {
        moves.extend(relocate(conn, file, guest.id, old.parent(guest.under, &counterparts)).await?);
    }
    let moved = old.guests.iter().filter(|guest| guest.is_shown).count();
    redirect_names(conn, file, &old, &counterparts).await?;

    let pairs: Vec<Counterpart> = counterparts.iter().map(|(old, new)| Counterpart { old: *old, new: *new }).collect();
    // A delete of the other end of one of these removes its row before it takes the pen.
    let merges = store::reprocess::redirect_merges(conn, file, &counterparts, &old.nodes).await?;
    let bindings = store::reprocess::redirect_bindings(conn, file, &counterparts, &old.nodes).await?;
    let facts_followed = follow::redirect(conn, &pairs, &old.nodes).await?;
    let facts_followed = store::reprocess::shown_facts(conn, file, &facts_followed, &old.nodes).await?.len();
    let extractions_lost = store::reprocess::redirect_extractions(conn, file, &counterparts, &old.nodes).await?;
    store::reprocess::set_aside(conn, file, generation, &old.nodes).await?;
    // Indexes are locked after documents.
    store::reprocess::redirect_indexes(conn, file, &counterparts).await?;
    for (from, to) in &moves {
        store::indexes::manage::follow_move(conn, from, to).await?;
        titles::follow(core, conn, to).await?;
    }
    // A file that failed before enters the indexes now, and its new tree may have another title than was indexed.
    store::indexes::manage::hold_builds(conn).await?;
    store::indexes::postings::hand_over(conn, generation.id.document(), id).await?;
    store::indexes::manage::look_again(conn, file).await?;
    let facts_lost = follow::documents_gone(conn, &old.nodes, &[]).await?;
    let facts_lost = store::reprocess::shown_facts(conn, file, &facts_lost, &old.nodes).await?;
    let gone: Vec<DocumentId> = old.nodes.iter().copied().chain([generation.id.document()]).collect();
    store::ingest_nodes::forget(conn, &gone).await?;
    let after = store::ingest_nodes::count_by_path(conn, &everything, id).await?;
    let change = Frontier {
        total: after.total - before.total,
        in_flight: after.in_flight - before.in_flight,
        settled: after.settled - before.settled,
        failed: after.failed - before.failed,
    };
    store::ingest_nodes::count(conn, id, change).await?;
    store::ingest_nodes::fold_frontiers(conn, &[id.as_root()]).await?;
    outdate_sums(&core.settings.task_badges, conn, &[id]).await?;
    let after = Frontier { total: after.total - old.hidden, failed: after.failed - old.hidden_failed, ..after };
    let told = Told { after, followed, lost, moved, facts_followed, facts_lost, bindings, merges, extractions_lost };
    Ok(tell(conn, file, generation, told).await?)
}

/// Has search contexts and webhooks name the nodes that take the place of those that they named. The log has those that name a node without a
/// counterpart: readers of the file may not know of them.
async fn redirect_names(
    conn: &mut PgConnection,
    file: &Place,
    old: &Old,
    counterparts: &HashMap<DocumentId, DocumentId>,
) -> sqlx::Result<()> {
    let contexts = store::contexts::redirect(conn, counterparts, &old.nodes).await?;
    let webhooks = store::reprocess::redirect_webhooks(conn, file, counterparts, &old.nodes).await?;
    if !contexts.is_empty() || !webhooks.is_empty() {
        let contexts_listed: Vec<i64> = contexts.iter().map(|context| context.0).take(LISTED).collect();
        let webhooks_listed: Vec<i64> = webhooks.iter().map(|webhook| webhook.0).take(LISTED).collect();
        tracing::warn!(
            root.id = file.id().0,
            contexts = ?contexts_listed,
            webhooks = ?webhooks_listed,
            count = contexts.len() + webhooks.len(),
            "search contexts or webhooks name parts of a file for which its new tree has no node"
        );
    }
    Ok(())
}

/// Moves a caller's document, with all under it, under the node that takes the place of its old parent. Returns from where and to where.
async fn relocate(
    conn: &mut PgConnection,
    file: &Place,
    guest: DocumentId,
    under: DocumentId,
) -> sqlx::Result<Option<(Place, Place)>> {
    let Some(from) = store::reprocess::place_under(conn, file, guest).await? else { return Ok(None) };
    let height = store::moves::height(conn, &from).await?;
    let parent = store::reprocess::place_under(conn, file, under).await?.filter(|parent| parent.admits(height).is_ok());
    let parent = parent.as_ref().unwrap_or(file);
    let origins = store::events::origins(conn, &[guest]).await?;
    let to = from.moved(Some(parent));
    store::moves::relocate(conn, &from, Some(parent)).await?;
    store::moves::relocate_tasks(conn, &from, &to).await?;
    store::events::moved(conn, &origins).await?;
    Ok(Some((from, to)))
}

/// What is told of a swap. Of nodes, links, facts, documents and bindings it counts those that every reader of the file may know of.
struct Told {
    after: Frontier,
    followed: usize,
    lost: Vec<Link>,
    moved: usize,
    facts_followed: usize,
    facts_lost: Vec<ShownFact>,
    /// How many bindings follow, and those that do not.
    bindings: (i64, Vec<LostBinding>),
    /// How many merges follow, and those that do not.
    merges: (i64, Vec<LostMerge>),
    /// How many texts are gone of which facts were still to be extracted.
    extractions_lost: i64,
}

/// Records how the reprocess ended; the log has the lost links and bindings that not every reader of the file may know of.
async fn tell(conn: &mut PgConnection, file: &Place, generation: &Generation, told: Told) -> sqlx::Result<()> {
    let id = file.id();
    let (shown, hidden): (Vec<Link>, Vec<Link>) = told.lost.into_iter().partition(|link| link.is_shown);
    if !hidden.is_empty() {
        let links: Vec<i64> = hidden.iter().map(|link| link.id).take(LISTED).collect();
        tracing::warn!(
            root.id = id.0,
            links = ?links,
            count = hidden.len(),
            "a reprocess deleted links whose other end not every reader of the file may read, because the new tree has no node for them"
        );
    }
    let (bindings_followed, bindings_lost) = told.bindings;
    let (bindings_lost, unshown): (Vec<LostBinding>, Vec<LostBinding>) =
        bindings_lost.into_iter().partition(|binding| binding.is_shown);
    if !unshown.is_empty() {
        let bindings: Vec<i64> = unshown.iter().map(|binding| binding.id.0).take(LISTED).collect();
        tracing::warn!(
            root.id = id.0,
            bindings = ?bindings,
            count = unshown.len(),
            "a reprocess deleted shape bindings of ontologies that not every reader of the file may read, because the new tree has no node for them"
        );
    }
    let listed: Vec<Value> = shown
        .iter()
        .take(LISTED)
        .map(|link| {
            json!({"link_id": link.id, "link_type": link.link_type, "source_id": link.source_id, "target_id": link.target_id, "anchor": link.anchor})
        })
        .collect();
    let mut done = outcome("done", generation);
    done["links_followed"] = told.followed.into();
    done["links_lost"] = shown.len().into();
    done["lost"] = listed.into();
    done["documents_moved"] = told.moved.into();
    done["facts_followed"] = told.facts_followed.into();
    done["facts_lost"] = told.facts_lost.len().into();
    let listed = told.facts_lost.iter().take(LISTED);
    done["lost_facts"] = listed
        .map(|fact| json!({"triple_id": fact.id, "subject_id": fact.subject_id, "object_id": fact.object_id}))
        .collect();
    done["bindings_followed"] = bindings_followed.into();
    done["bindings_lost"] = bindings_lost.len().into();
    let listed = bindings_lost.iter().take(LISTED);
    done["lost_bindings"] = listed
        .map(|binding| {
            json!({"binding_id": binding.id, "ontology_id": binding.ontology_id, "shape": binding.shape, "document_id": binding.document_id, "mode": binding.mode.0, "anchor": binding.anchor})
        })
        .collect();
    let (merges_followed, merges_lost) = told.merges;
    done["merges_followed"] = merges_followed.into();
    done["merges_lost"] = merges_lost.len().into();
    let listed = merges_lost.iter().take(LISTED);
    done["lost_merges"] = listed
        .map(|merge| json!({"merge_id": merge.id, "kept_id": merge.kept_id, "merged_id": merge.merged_id}))
        .collect();
    done["extractions_lost"] = told.extractions_lost.into();
    store::reprocess::record(conn, file, &done).await?;
    store::events::warnings(conn, &[id.as_root()]).await?;
    let seconds = (chrono::Utc::now() - generation.started_at).num_milliseconds() as f64 / 1000.0;
    let data = json!({
        "nodes": told.after.total, "nodes_failed": told.after.failed, "seconds": seconds,
        "links_followed": told.followed, "links_lost": shown.len(), "documents_moved": told.moved,
        "facts_followed": told.facts_followed, "facts_lost": told.facts_lost.len(),
    });
    store::events::record(conn, EventKind::IngestReprocessed, &[id], &data).await
}
