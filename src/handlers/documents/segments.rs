//! Puts a document's children into segments, between which the subject changes.
use super::{must_match, pieces::made_by_a_caller, update::after_a_large_move};
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{
        options::Rollup,
        raptor,
        segments::{Anchors, Children, Levels, Sections},
    },
    registry::Handle,
    search::bm25,
    service::Service,
    store::{
        self,
        evidence::Evidence,
        ingest_nodes::Frontier,
        lexicon::Lexicon,
        nodes::{ROWS, SEGMENT},
        places::Place,
        segments::Made,
    },
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::BTreeSet;
use svc_actors::{Lanes, WriteMode};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{EventKind, MOST_SEGMENTED, SegmentRequest, SegmentResponse, SegmentSummary, Settled},
};
use svc_ids::DocumentId;

impl Handle<ops::segment_document> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::segment_document>) -> Result<SegmentResponse, Failure> {
        let (id, request) = (DocumentId(call.path.id), call.body.0.unwrap_or_default());
        let options = options(&request);
        let (place, parents) = {
            let mut conn = self.pool.acquire().await.or_fail()?;
            let place = caller.writes(&mut conn, id).await.or_fail()??;
            made_by_a_caller(&mut conn, &place, "segments its children").await?;
            let earlier = earlier(&mut conn, &place, request.replace).await?;
            (place, holders(id, &earlier))
        };
        let slot = self.admission.embed(caller.principal_id()).await?;
        let model = self.model().await?;
        let children = read(self, &place, &parents, model.identity(), &options).await?;
        let members: Vec<DocumentId> = children.members().iter().map(|member| member.id).collect();
        let work = move || {
            let levels = children.levels(&options);
            // The thread has the slot, because it outlives a request that is dropped.
            drop(slot);
            levels
        };
        let levels = tokio::task::spawn_blocking(work).await.map_err(|error| Failure::new(Code::Internal, error))?;
        let moving = self.admission.moving(caller.principal_id()).await?;
        // To wait for the slots, and to find the places to cut, may have taken long.
        let caller = &caller.again(&self.pool).await?;

        // Nothing may be put under the children while they move.
        let mut tx = store::transaction::begin_moving(&self.pool).await.or_fail()?;
        let leaves_events = store::locks::files_around(&mut tx, id).await.or_fail()?;
        let Some(place) = store::places::lock_for_change(&mut tx, &caller.writable(), id).await.or_fail()? else {
            return Err(caller.refusal(&mut tx, id).await.or_fail()?);
        };
        let before = store::documents::read(&mut tx, &caller.readable(), id, true).await.or_fail()?;
        must_match(&call.meta, before.ok_or_else(|| Failure::no_document(id.0))?)?;
        let earlier = earlier(&mut tx, &place, request.replace).await?;
        let now = store::segments::member_ids(&mut tx, &place, &parents, MOST_SEGMENTED + 1).await.or_fail()?;
        if now != members || holders(id, &earlier) != parents {
            let detail = format!("the children of document {id} changed while they were being segmented");
            return Err(Failure::new(Code::Conflict, detail).with("retry_after", 1).with("remedy", "try again"));
        }
        let made =
            Segmenting { place: &place, lexicon: &self.lexicon, model: model.identity(), earlier, members, levels };
        let (segments, deleted) = made.store(&mut tx).await?;
        // Their vectors are sums of those of this model, of which there may be none any more.
        if self.is_replaced(&mut tx, model.identity()).await.or_fail()? {
            let detail = format!("another model serves by now than the one of the vectors of document {id}'s children");
            return Err(Failure::new(Code::Conflict, detail).with("retry_after", 1).with("remedy", "try again"));
        }
        tx.commit().await.or_fail()?;
        drop(moving);
        if leaves_events {
            after_a_large_move(self).await;
        }
        self.wake.notify(Lanes::ALL);
        Ok(SegmentResponse { document_id: id.0, children: made.members.len(), segments, deleted })
    }
}

fn options(request: &SegmentRequest) -> Rollup {
    let defaults = Rollup::default();
    Rollup {
        max_children: request.max_children.map_or(defaults.max_children, |most| most as usize),
        penalty: request.penalty.unwrap_or(defaults.penalty),
        min_segment: request.min_segment.map_or(defaults.min_segment, |least| least as usize),
        ..defaults
    }
}

/// The segments of an earlier call, if the caller wants to replace them and nobody gave one of them rights or a text of its own.
async fn earlier(conn: &mut PgConnection, place: &Place, replace: bool) -> Result<Vec<Place>, Failure> {
    let made = store::segments::made(conn, place).await.or_fail()?;
    if !replace && !made.is_empty() {
        let detail = format!("document {} has {} segments of an earlier call", place.id(), made.len());
        return Err(Failure::new(Code::Conflict, detail).with("remedy", "send `replace` to segment its children anew"));
    }
    if let Some(protected) = made.iter().find(|made| made.has_own_rights) {
        let detail = format!("segment {} of an earlier call has rights of its own", protected.place.id());
        return Err(Failure::new(Code::Conflict, detail).with("remedy", "have the owner unprotect it first"));
    }
    let earlier: Vec<Place> = made.into_iter().map(|Made { place, .. }| place).collect();
    let held = ids(&earlier);
    store::segments::hold(conn, &held).await.or_fail()?;
    if let Some(told) = store::segments::with_text(conn, &held).await.or_fail()? {
        let detail = format!("segment {told} of an earlier call has a text of its own, which would be deleted with it");
        return Err(Failure::new(Code::Conflict, detail).with("remedy", "move its text elsewhere, or delete the text"));
    }
    Ok(earlier)
}

fn ids(places: &[Place]) -> Vec<DocumentId> {
    places.iter().map(Place::id).collect()
}

/// The documents under which the children may be.
fn holders(id: DocumentId, earlier: &[Place]) -> Vec<DocumentId> {
    earlier.iter().map(Place::id).chain([id]).collect()
}

/// The children in their order, if they can be segmented now.
async fn read(
    service: &Service,
    place: &Place,
    parents: &[DocumentId],
    model: &str,
    options: &Rollup,
) -> Result<Children, Failure> {
    let id = place.id();
    let mut conn = service.pool.acquire().await.or_fail()?;
    let mut children = Children::new(options);
    loop {
        let page = store::segments::members(&mut conn, place, parents, model, children.last(), ROWS).await.or_fail()?;
        if page.is_empty() {
            break;
        }
        let taken = tokio::task::spawn_blocking(move || {
            children.take(page, &|_| 0);
            children
        });
        children = taken.await.map_err(|error| Failure::new(Code::Internal, error))?;
        if children.members().len() > MOST_SEGMENTED {
            let detail = format!("document {id} has more than {MOST_SEGMENTED} children, the most to segment together");
            return Err(Failure::new(Code::TooLarge, detail)
                .with("limit", MOST_SEGMENTED)
                .with("remedy", "put them under several documents, and segment each"));
        }
    }
    let missing = children.without_vector();
    if !missing.is_empty() && store::segments::are_expected(&mut conn, &missing).await.or_fail()? {
        return Err(Failure::new(Code::Conflict, format!("children of document {id} are still being embedded"))
            .with("retry_after", 5)
            .with("remedy", "try again once a search finds them"));
    }
    if children.vectors() < 2 {
        let detail = format!("fewer than two children of document {id} have a vector");
        return Err(Failure::field("id", detail)
            .with("remedy", "name a document with children, and embed those that have no vector"));
    }
    Ok(children)
}

/// What a call makes of the children.
struct Segmenting<'a> {
    place: &'a Place,
    lexicon: &'a Lexicon,
    model: &'a str,
    /// The segments of the call before.
    earlier: Vec<Place>,
    members: Vec<DocumentId>,
    /// `None` if the children are one segment.
    levels: Option<Levels>,
}

impl Segmenting<'_> {
    /// Moves the children from the earlier segments into the new ones. Returns these, and how many were there before.
    async fn store(&self, conn: &mut PgConnection) -> Result<(Vec<SegmentSummary>, usize), Failure> {
        let place = self.place;
        if let Some(levels) = &self.levels {
            place.admits(levels.height() - 1 + store::moves::height(conn, place).await.or_fail()?)?;
        }
        store::reservations::hold_for_edit(conn, place, WriteMode::Subtree).await.or_fail()?;
        let mut moving: BTreeSet<DocumentId> =
            store::segments::contents(conn, &ids(&self.earlier)).await.or_fail()?.into_iter().collect();
        if self.levels.is_some() {
            moving.extend(&self.members);
        }
        let moving = Vec::from_iter(moving);
        let origins = store::events::origins(conn, &moving).await.or_fail()?;
        let deleted = self.dissolve(conn).await?;
        let (evidence, made) = match &self.levels {
            Some(levels) => (levels.evidence(), self.insert(conn, levels).await?),
            None => (Value::Null, Vec::new()),
        };
        store::events::moved(conn, &origins).await.or_fail()?;
        store::evidence::record(conn, place.id(), Evidence::StructureSemantic, &evidence).await.or_fail()?;
        let grown = made.len() as i64 - deleted as i64;
        let change = Frontier { total: grown, settled: grown, ..Frontier::default() };
        store::ingest_nodes::count(conn, place.id(), change).await.or_fail()?;
        Ok((made, deleted))
    }

    /// Takes the earlier segments away, and the summaries of what was in each. Returns how many segments there were.
    async fn dissolve(&self, conn: &mut PgConnection) -> Result<usize, Failure> {
        if self.earlier.is_empty() {
            return Ok(0);
        }
        let earlier = ids(&self.earlier);
        for tree in store::raptor::trees(conn, &earlier).await.or_fail()? {
            raptor::remove(conn, &tree).await.or_fail()?;
        }
        store::segments::dissolve(conn, self.place, &earlier).await.or_fail()?;
        // An index that has one of these as a member covers nothing of it any more.
        store::indexes::manage::follow_parts(conn, self.place, &earlier).await.or_fail()?;
        let is_top = |made: &&Place| made.path().last() == Some(&self.place.id().0);
        let tops: Vec<Place> = self.earlier.iter().filter(is_top).cloned().collect();
        let gone = store::documents::delete_subtrees(conn, &tops).await.or_fail()?.ids;
        bm25::remove(conn, None, &gone).await.or_fail()?;
        Ok(gone.len())
    }

    async fn insert(&self, conn: &mut PgConnection, levels: &Levels) -> Result<Vec<SegmentSummary>, Failure> {
        let place = self.place;
        let ids = store::nodes::reserve_ids(conn, levels.total()).await.or_fail()?;
        // The children may come from anywhere, so that no stretch of one text holds them.
        let sections: Sections = levels.sections(place, ids, &Anchors::default());
        sections.insert(conn, self.lexicon, place, SEGMENT).await.or_fail()?;
        sections.move_members(conn, place).await.or_fail()?;
        for level in &sections.levels {
            store::segments::sums::set(conn, place, level, self.model).await.or_fail()?;
        }
        let all: Vec<DocumentId> = sections.nodes.iter().map(|node| node.id).collect();
        store::nodes::leave_flight(conn, &all, Settled::Settled).await.or_fail()?;
        store::events::record(conn, EventKind::DocumentCreated, &all, &json!({})).await.or_fail()?;
        let summary = |(node, (level, at)): (&store::nodes::NewNode, &(usize, usize))| SegmentSummary {
            id: node.id.0,
            parent_id: node.parent_id.0,
            title: node.title.clone(),
            children: levels.directly_under(*level, *at),
        };
        Ok(sections.nodes.iter().zip(&sections.places).map(summary).collect())
    }
}
