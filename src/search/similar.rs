//! Documents that are like another one: the nearest to its vector.
use super::{
    Asked, Found, Ranking, Total, answer, eligible,
    legs::{Leg, expected, nearest_leg},
    near_enough,
    paging::Page,
    results::Shows,
};
use crate::{
    access::Caller,
    core::Core,
    error::OrFail,
    store::{self, search::Eligible, vectors::Stored},
};
use pgvector::HalfVector;
use std::time::Instant;
use svc_client::{
    Code, Failure,
    wire::{SearchMethod, SearchResponse, SimilarQuery, VectorSearch, document_fields},
};
use svc_ids::DocumentId;

/// What is looked for beside a document.
pub(super) struct Similar {
    model: String,
    vector: HalfVector,
    /// What is above the document is like it because it has it in it.
    above: Vec<DocumentId>,
    min_similarity: Option<f64>,
}

impl Similar {
    pub async fn first(&self, core: &Core, eligible: &Eligible, depth: u32) -> Result<Found, Failure> {
        let asked = depth.saturating_add(u32::try_from(self.above.len()).unwrap_or(u32::MAX));
        let query = Stored { model: &self.model, vector: self.vector.clone() };
        let open = nearest_leg(core, eligible, &query, expected(core, eligible).await?, asked).await?;
        let Leg { mut ranked, total, ran } = open.close().await?;
        let are_compared = total.exact;
        let is_whole = are_compared && total.count == ranked.len() as u64;
        ranked.retain(|(id, _)| !self.above.contains(id));
        // Which of those above are among what was not returned is unknown.
        let total = Total { count: ranked.len() as u64, exact: is_whole && ranked.len() <= depth as usize };
        ranked.truncate(depth as usize);
        Ok(near_enough(Leg { ranked, total, ran }, are_compared, self.min_similarity))
    }
}

/// Finds the documents that are like this one, but for what is under it and above it.
pub async fn similar(
    core: &Core,
    caller: &Caller,
    id: DocumentId,
    query: SimilarQuery,
) -> Result<SearchResponse, Failure> {
    let started = Instant::now();
    let model = core.model().await?;
    let mut conn = core.pool.acquire().await.or_fail()?;
    let known = store::vectors::of(&mut conn, &caller.readable(), id, model.identity()).await.or_fail()?;
    drop(conn);
    let (above, vector) = known.ok_or_else(|| Failure::no_document(id.0))?;
    let Some(vector) = vector else {
        return Err(Failure::new(
            Code::Conflict,
            format!("document {id} has no vector that others could be compared with"),
        )
        .with("remedy", "wait until it is settled, or POST /documents/{id}/embed if it has a text"));
    };
    let found = Similar { model: model.identity().to_owned(), vector, above, min_similarity: query.min_similarity };
    // Pages tell searches apart by their bodies.
    let body = VectorSearch {
        parent_id: query.parent_id,
        usetype: query.usetype.map(|usetype| vec![usetype]),
        limit: query.limit,
        include_content: query.include_content,
        include_embed: query.include_embed,
        fields: query.fields.as_deref().map(document_fields).transpose()?,
        group_by: query.group_by,
        per_group: query.per_group,
        snippets: Some(false),
        cursor: query.cursor,
        min_similarity: query.min_similarity,
        ..VectorSearch::new(&format!("similar to {id}"))
    };
    let asked = Asked {
        method: SearchMethod::Vector,
        started,
        query: "",
        limit: body.limit,
        page: Page::of(SearchMethod::Vector, &body, body.cursor.as_deref(), body.limit)?,
        depth: body.depth(),
        second_stage: None,
        reorder: None,
        sorting: None,
        shows: Shows::of(body.fields.as_deref(), body.include_content, body.include_embed),
        include_scores: false,
        explain: false,
        group_by: body.grouping(),
        with_whole: false,
        per_group: body.per_group,
        snippets: false,
        facets: &[],
    };
    let mut eligible = eligible(core, caller, body.parent_id, body.usetype.clone(), None).await?;
    eligible.excluded.push(id);
    Box::pin(answer::answer(core, &eligible, asked, Ranking::Similar(&found))).await
}
