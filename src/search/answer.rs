//! What becomes of a ranking: later stages, groups, and the answer with its documents.
use super::{
    Asked, Found, GROWTH, LEG_DEPTH, Ranked, Ranking, Total,
    explain::Laps,
    facets,
    groups::{Group, Text, Tree, looked_at, parts},
    paging::{self, Page},
    rerank,
    results::{self, Read},
    snippets,
};
use crate::{
    core::Core,
    error::OrFail,
    store::{
        self,
        documents::Unsettled,
        scope::Readable,
        search::{Eligible, groups as rows},
        vectors::Stored,
    },
};
use std::collections::{HashMap, HashSet};
use svc_client::{
    Failure,
    wire::{
        DocumentResponse, FacetsResponse, GroupBy, LegExplanation, LegWay, ScopeState, SearchHit, SearchMethod,
        SearchResponse, SearchResult, SearchStage, Snippet, SortBy, SortedResponse, Sorting, TotalIs,
    },
};
use svc_ids::DocumentId;

/// The most results of the first stage that are put into groups: a group that begins behind them is not found.
const DEEPEST: u32 = LEG_DEPTH * GROWTH.pow(5);
/// The same where the tokens of each result are compared.
const DEEPEST_BY_TOKENS: u32 = LEG_DEPTH * GROWTH.pow(3);

/// Why nothing was compared with the query.
const NO_VECTOR: &str = "the embedding model knows none of the query's words, so nothing is found by meaning";

/// A place in the answer.
struct Place {
    /// What tells it from other places on any page: the key of a group.
    key: DocumentId,
    shown: DocumentId,
    /// The result of the ranking that has this place.
    first: DocumentId,
    score: f64,
    /// The texts that are shown of a group.
    texts: Option<Vec<Text>>,
}

impl Place {
    /// The documents whose words are shown, the best first.
    fn speakers(&self) -> Vec<DocumentId> {
        match self.texts.as_deref() {
            None | Some([]) => vec![self.shown],
            Some(texts) => texts.iter().map(Text::spoken_by).collect(),
        }
    }
}

pub(super) async fn answer(
    core: &Core,
    eligible: &Eligible,
    mut asked: Asked<'_>,
    ranking: Ranking<'_>,
) -> Result<SearchResponse, Failure> {
    let mut laps = Laps::since(asked.started);
    laps.end(SearchStage::Prepare);
    let (page, found) = loop {
        let looked = match asked.group_by {
            GroupBy::None => Box::pin(alone(core, eligible, &asked, &ranking, &mut laps)).await?,
            GroupBy::File | GroupBy::Section => Box::pin(grouped(core, eligible, &asked, &ranking, &mut laps)).await?,
        };
        // More results than this looks at may have been stored before all those that were shown.
        let is_empty = looked.0.places.is_empty() && !asked.ranks_again();
        if !is_empty || !asked.page.looks_deeper(looked.0.before) {
            break looked;
        }
    };
    let Shown { places, before, order, total, facets, sorted, keys } = page;
    if let Ranking::Hybrid(_, added) = &ranking {
        // The next page adds terms of the same texts.
        asked.page.fed_back = added.fed_back().to_vec();
    }
    // What is sorted is what stands for a group.
    let known = |place: &Place| if asked.sorting.is_some() { place.shown } else { place.key };
    let shown: Vec<DocumentId> = places.iter().map(known).collect();
    let key = shown.last().and_then(|id| keys.get(id)).and_then(|(_, key)| key.clone());
    let again = asked.ranks_again().then_some((asked.depth, key));
    let next_cursor = asked.page.next((before + shown.len(), &order), &shown, total, found.is_narrow, again);
    let of = |place: &Place| {
        let texts = place.texts.iter().flatten().map(|text| text.shown);
        std::iter::once(place.shown).chain(texts).collect::<Vec<_>>()
    };
    let ids: Vec<DocumentId> = places.iter().flat_map(of).collect();
    let mixed = core.serving.mixed().filter(|_| ranking.has_vectors() || matches!(ranking, Ranking::Similar(_)));
    let speakers: Vec<DocumentId> = match asked.snippets {
        true => places.iter().flat_map(Place::speakers).collect(),
        false => Vec::new(),
    };
    let mut conn = core.pool.acquire().await.or_fail()?;
    let Read { mut documents, beginnings, waiting } =
        results::show(core, &mut conn, &eligible.scope, &ids, &speakers, &asked.shows).await?;
    let Unsettled { in_flight, failed, other_model } =
        store::documents::unsettled(&mut conn, &eligible.scope, eligible.parent_id, mixed.as_deref(), waiting)
            .await
            .or_fail()?;
    // What an index still lacks may match as well. Mostly none is being built, which the answer's documents came with.
    let is_partial = match waiting {
        Some(waiting) if !waiting.are_building => false,
        _ => match ranking.built() {
            Some(index) => store::indexes::manage::is_building(&mut conn, index).await.or_fail()?,
            None => false,
        },
    };
    drop(conn);
    laps.end(SearchStage::Show);
    let mut snippets = match asked.snippets {
        true => snippets::of(core, asked.query, &ranking, beginnings).await?,
        false => HashMap::new(),
    };
    if asked.snippets {
        laps.end(SearchStage::Snippets);
    }
    let shows_legs = asked.include_scores || asked.method == SearchMethod::Hybrid;
    let result = |place: Place| {
        let legs = found.legs.get(&place.first).filter(|_| shows_legs).copied();
        let snippet = place.speakers().first().and_then(|speaker| snippets.get(speaker)).cloned();
        Some(SearchResult {
            document: documents.remove(&place.shown)?,
            score: place.score,
            no_tokens: found.no_tokens.contains(&place.first),
            legs,
            snippet,
            hits: place
                .texts
                .map(|texts| texts.into_iter().filter_map(|text| hit(&mut documents, &mut snippets, text)).collect()),
        })
    };
    let results = places.into_iter().filter_map(result).collect();
    let counted_as = |is_exact: bool| if is_exact && !is_partial { TotalIs::Exact } else { TotalIs::AtLeast };
    let sorted =
        sorted.map(|sorted| SortedResponse { count_is: counted_as(sorted.count_is == TotalIs::Exact), ..sorted });
    let facets =
        facets.map(|facets| FacetsResponse { counted_is: counted_as(facets.counted_is == TotalIs::Exact), ..facets });
    let has_no_vector = |leg: &LegExplanation| leg.plan.as_ref().is_some_and(|plan| plan.way == LegWay::NoVector);
    Ok(SearchResponse {
        results,
        total: found.total.count,
        total_is: counted_as(found.total.exact),
        latency_ms: asked.started.elapsed().as_secs_f64() * 1e3,
        method: asked.method,
        why: None,
        searched_instead: None,
        expanded_by: None,
        no_vector: found.ran.iter().any(has_no_vector).then(|| NO_VECTOR.to_owned()),
        group_by: (asked.group_by != GroupBy::None).then_some(asked.group_by),
        reranked: asked.second_stage,
        sorted,
        next_cursor,
        facets,
        explanation: asked.explain.then(|| laps.explain(found.ran, found.fusion, &eligible.scope)),
        scope_state: ScopeState { in_flight, failed, other_model },
    })
}

fn hit(
    documents: &mut HashMap<DocumentId, DocumentResponse>,
    snippets: &mut HashMap<DocumentId, Snippet>,
    text: Text,
) -> Option<SearchHit> {
    let (document, snippet) = (documents.remove(&text.shown)?, snippets.remove(&text.spoken_by()));
    Some(SearchHit { document, score: text.score, texts: text.merged.into_iter().map(|id| id.0).collect(), snippet })
}

/// A page of places, how many come before it, and how many there are on all pages.
struct Shown {
    places: Vec<Place>,
    before: usize,
    /// What tells the places of the ranking apart, in their order; nothing where it is sorted.
    order: Vec<DocumentId>,
    total: Total,
    facets: Option<FacetsResponse>,
    sorted: Option<SortedResponse>,
    keys: Left,
}

/// What an order leaves for a page and those after it, each with its place there and what it is sorted by.
type Left = HashMap<DocumentId, (usize, Option<String>)>;

impl Found {
    /// How many places the pages lead through: a later stage ranks no more than its candidates, of which there are as many.
    fn total_shown(&self, asked: &Asked<'_>, candidates: usize) -> Total {
        match asked.ranks_again() {
            true => Total { count: candidates as u64, exact: true },
            false => self.total,
        }
    }

    /// Takes the order of a second stage.
    fn rerank(&mut self, (ranked, no_tokens): (Ranked, HashSet<DocumentId>)) {
        for (id, leg) in super::ranks(&ranked) {
            self.legs.entry(id).or_default().rerank = Some(leg);
        }
        (self.ranked, self.no_tokens) = (ranked, no_tokens);
    }
}

/// Each document stands for itself.
async fn alone(
    core: &Core,
    eligible: &Eligible,
    asked: &Asked<'_>,
    ranking: &Ranking<'_>,
    laps: &mut Laps,
) -> Result<(Shown, Found), Failure> {
    let depth = match asked.ranks_again() {
        true => asked.depth,
        false => asked.page.reach() as u32,
    };
    let enough = asked.enough(depth);
    let mut found = ranking.first(core, eligible, depth, enough).await?;
    laps.end(SearchStage::Rank);
    let facets = Box::pin(facets::count(core, eligible, asked, ranking, &found, enough)).await?;
    if facets.is_some() {
        laps.end(SearchStage::Facets);
    }
    if let Some(method) = asked.second_stage {
        let ids: Vec<DocumentId> = found.ranked.iter().map(|(id, _)| *id).collect();
        // This takes time, and a connection of its own if it needs one.
        found.rerank(rerank::run(core, &eligible.scope, method, asked.query, &ids).await?);
        laps.end(SearchStage::Rerank);
    }
    if let Some(reorder) = asked.reorder {
        Box::pin(reorder.run(core, &eligible.scope, &mut found)).await?;
        laps.end(SearchStage::Reorder);
    }
    let (mut sorted, mut keys, count) = (None, Left::new(), found.ranked.len());
    let mut order: Vec<DocumentId> = found.ranked.iter().map(|(id, _)| *id).collect();
    if let Some(sorting) = asked.sorting {
        keys = left(core, &eligible.scope, &asked.page, sorting, &order).await?;
        order.clear();
        found.ranked.retain(|(id, _)| keys.contains_key(id));
        found.ranked.sort_by_key(|(id, _)| keys.get(id).map(|(place, _)| *place));
        sorted = Some(sorted_as(sorting, count, found.is_whole && found.total.exact));
        laps.end(SearchStage::Reorder);
    } else {
        let passed = asked.page.passed(&order);
        found.ranked.retain(|(id, _)| !passed.contains(id));
    }
    let before = count - found.ranked.len();
    let place =
        |(id, score): &(DocumentId, f64)| Place { key: *id, shown: *id, first: *id, score: *score, texts: None };
    let places = found.ranked.iter().take(asked.limit as usize).map(place).collect();
    let total = found.total_shown(asked, count);
    Ok((Shown { places, before, order, total, facets, sorted, keys }, found))
}

/// Sorts what is chosen anew for each page, and leaves out what came before this one.
async fn left(
    core: &Core,
    scope: &Readable,
    page: &Page,
    Sorting { by, order, .. }: Sorting,
    ids: &[DocumentId],
) -> Result<Left, Failure> {
    let key = page.key();
    if by != SortBy::Title && key.is_some_and(|key| key.parse::<i64>().is_err()) {
        return Err(paging::of_another());
    }
    let mut conn = core.pool.acquire().await.or_fail()?;
    let sorted = store::search::reorder::sorted(&mut conn, scope, ids, by, order, key).await.or_fail()?;
    Ok(page.left(sorted, order).into_iter().zip(0..).map(|(sorted, place)| (sorted.id, (place, sorted.key))).collect())
}

fn sorted_as(Sorting { by, order, .. }: Sorting, count: usize, is_all: bool) -> SortedResponse {
    let count_is = if is_all { TotalIs::Exact } else { TotalIs::AtLeast };
    SortedResponse { by, order, count: count as u64, count_is }
}

/// Containers stand for their texts. The first stage is asked for more until there are enough groups or nothing else matches, so the first
/// result of each group is where it is without groups.
async fn grouped(
    core: &Core,
    eligible: &Eligible,
    asked: &Asked<'_>,
    ranking: &Ranking<'_>,
    laps: &mut Laps,
) -> Result<(Shown, Found), Failure> {
    // A later stage ranks the same groups for every page, however many the page shows.
    let (wanted, limit) = match asked.ranks_again() {
        true if asked.sorting.is_some() => (asked.depth as usize, asked.depth as usize),
        true => (asked.page.first().min(asked.depth as usize), asked.depth as usize),
        false => (asked.page.reach(), asked.page.reach()),
    };
    // So many groups with all words of the query are enough.
    let content = if asked.sorting.is_some() { asked.limit as usize } else { wanted };
    let deepest = if matches!(ranking, Ranking::Maxsim(_)) { DEEPEST_BY_TOKENS } else { DEEPEST };
    let reach = asked.depth.max(limit as u32);
    let (mut depth, mut enough) = (LEG_DEPTH.max(GROWTH * reach), asked.enough(reach));
    let mut tree = Tree::new(asked.group_by, eligible.under());
    // A search by words finds containers only by their titles, and a later stage decides the order itself.
    let by_wholes =
        asked.with_whole && !asked.ranks_again() && matches!(ranking, Ranking::Vector(_) | Ranking::Hybrid(..));
    let compared = LEG_DEPTH as usize;
    let kept = if by_wholes { limit.max(compared) } else { limit };
    let (mut found, mut groups, total) = loop {
        let mut found = ranking.first(core, eligible, depth, enough).await?;
        laps.end(SearchStage::Rank);
        match found.members.take() {
            Some(members) => tree.learn(members),
            None => {
                let mut conn = core.pool.acquire().await.or_fail()?;
                let best: Vec<DocumentId> =
                    found.ranked.iter().take(looked_at(asked.group_by, asked.limit)).map(|(id, _)| *id).collect();
                let counted = rows::Counted { among: &best, most: 2 * i64::from(asked.limit) };
                let unknown = tree.unknown(&found.ranked);
                tree.learn(rows::members(&mut conn, eligible, &unknown, counted).await.or_fail()?);
            }
        }
        let (groups, keys) = tree.groups(&found.ranked, kept);
        laps.end(SearchStage::Group);
        let count = keys.len() as u64;
        if found.is_whole && found.is_narrow && groups.len() < content && asked.page.is_first() {
            // A thousand texts of one file may have all of the words, and other files some.
            enough = u32::MAX;
            continue;
        }
        if found.is_whole {
            let exact = found.total.exact;
            break (found, groups, Total { count, exact });
        }
        if groups.len() >= wanted {
            break (found, groups, Total { count, exact: false });
        }
        if !has_others(core, eligible, asked, &keys).await? {
            break (found, groups, Total { count, exact: true });
        }
        if depth >= deepest {
            break (found, groups, Total { count, exact: false });
        }
        depth = depth.saturating_mul(GROWTH).min(deepest);
        laps.end(SearchStage::Group);
    };
    laps.end(SearchStage::Group);
    let facets = Box::pin(facets::count(core, eligible, asked, ranking, &found, enough)).await?;
    if facets.is_some() {
        laps.end(SearchStage::Facets);
    }
    found.total = total;
    if by_wholes {
        // Each page sees the same results here, however deep it looks, and so the same order.
        let best = &found.ranked[..compared.min(found.ranked.len())];
        tree.put_by_wholes(best, &mut groups);
    }
    let (mut sorted, mut keys, mut count, mut before, mut order) = (None, Left::new(), groups.len(), 0, Vec::new());
    if let Some(sorting) = asked.sorting {
        let shown: Vec<DocumentId> = groups.iter().map(|group| group.shown).collect();
        keys = left(core, &eligible.scope, &asked.page, sorting, &shown).await?;
        groups.retain(|group| keys.contains_key(&group.shown));
        groups.sort_by_key(|group| keys.get(&group.shown).map(|(place, _)| *place));
        before = count - groups.len();
        sorted = Some(sorted_as(sorting, count, total.exact && total.count == count as u64));
        laps.end(SearchStage::Reorder);
    } else if asked.ranks_again() {
        let candidates = candidates(&found.ranked, &groups, asked.depth as usize);
        match asked.second_stage {
            Some(method) => {
                found.rerank(rerank::run(core, &eligible.scope, method, asked.query, &candidates).await?);
                laps.end(SearchStage::Rerank);
            }
            None => {
                let candidates: HashSet<DocumentId> = candidates.into_iter().collect();
                found.ranked.retain(|(id, _)| candidates.contains(id));
            }
        }
        if let Some(reorder) = asked.reorder {
            Box::pin(reorder.run(core, &eligible.scope, &mut found)).await?;
            laps.end(SearchStage::Reorder);
        }
        groups = tree.groups(&found.ranked, limit).0;
        count = groups.len();
    }
    let shown = found.total_shown(asked, count);
    if asked.sorting.is_none() {
        order = groups.iter().map(|group| group.key).collect();
        let passed = asked.page.passed(&order);
        groups.retain(|group| !passed.contains(&group.key));
        before = count - groups.len();
    }
    groups.truncate(asked.limit as usize);
    find_texts(core, eligible, asked, ranking, &mut tree, &mut groups).await?;
    let sections = sections(core, eligible, asked, &tree, &found.ranked).await?;
    let place = |group: Group| Place {
        key: group.key,
        shown: group.shown,
        first: group.first.0,
        score: group.first.1,
        texts: Some(tree.choose(&group, &sections, asked.per_group as usize)),
    };
    let places = groups.into_iter().map(place).collect();
    laps.end(SearchStage::Group);
    Ok((Shown { places, before, order, total: shown, facets, sorted, keys }, found))
}

/// Whether anything is eligible outside of these groups. To find that out takes less than to rank everything in them.
async fn has_others(
    core: &Core,
    eligible: &Eligible,
    asked: &Asked<'_>,
    groups: &[DocumentId],
) -> Result<bool, Failure> {
    let mut tx = store::transaction::begin_search(&core.pool).await.or_fail()?;
    let others = rows::has_others(&mut tx, eligible, groups, &parts(asked.group_by)).await.or_fail()?;
    tx.commit().await.or_fail()?;
    Ok(others)
}

/// What a later stage ranks: the best results, and the best of each group that has none among them.
fn candidates(ranked: &Ranked, groups: &[Group], depth: usize) -> Vec<DocumentId> {
    let best = ranked.iter().take(depth).map(|(id, _)| *id);
    let mut seen = HashSet::new();
    best.chain(groups.iter().map(|group| group.first.0)).filter(|id| seen.insert(*id)).collect()
}

/// Finds the best texts of groups of which the ranking has none, because they were found by their titles or as a whole.
async fn find_texts(
    core: &Core,
    eligible: &Eligible,
    asked: &Asked<'_>,
    ranking: &Ranking<'_>,
    tree: &mut Tree,
    groups: &mut [Group],
) -> Result<(), Failure> {
    let is_silent = |group: &&Group| group.texts.is_empty() && !tree.has_text(group.shown);
    let silent: Vec<DocumentId> = groups.iter().filter(is_silent).map(|group| group.shown).collect();
    if silent.is_empty() {
        return Ok(());
    }
    let model = if ranking.has_vectors() { Some(core.model().await?) } else { None };
    let query = match &model {
        Some(model) => {
            let embedded = core.queries.of(model, asked.query).await.or_fail()?;
            embedded.map(|embedded| Stored::new(model.identity(), model.native_width(), &embedded))
        }
        None => None,
    };
    let parts = parts(asked.group_by);
    let mut tx = store::transaction::begin_search(&core.pool).await.or_fail()?;
    let texts = rows::texts_of(&mut tx, eligible, &silent, &parts, query.as_ref(), asked.per_group).await.or_fail()?;
    let ids: Vec<DocumentId> = texts.iter().map(|(_, id, _)| *id).collect();
    let last = rows::statement(&eligible.scope, &ids, rows::Counted::default());
    let members = tx.commit_after_all(&[last]).await.or_fail()?.pop().unwrap_or_default();
    tree.learn(rows::read(eligible, &members).or_fail()?);
    for (container, id, cosine) in texts {
        if let Some(group) = groups.iter_mut().find(|group| group.shown == container) {
            // The cosine is a score only where all scores are.
            let score = cosine.filter(|_| matches!(ranking, Ranking::Vector(_)) && asked.second_stage.is_none());
            group.texts.push(Text { shown: id, score, merged: Vec::new() });
        }
    }
    Ok(())
}

/// The sections of which most texts are among the best `limit` texts, with these.
async fn sections(
    core: &Core,
    eligible: &Eligible,
    asked: &Asked<'_>,
    tree: &Tree,
    ranked: &Ranked,
) -> Result<HashMap<DocumentId, Vec<DocumentId>>, Failure> {
    if asked.group_by == GroupBy::Section {
        return Ok(HashMap::new());
    }
    let mut crowded = tree.crowded(ranked, asked.limit as usize);
    // Most sections were counted when they were read.
    let mut counts: HashMap<DocumentId, i64> =
        crowded.keys().filter_map(|id| Some((*id, tree.texts_in(*id)?))).collect();
    let others: Vec<DocumentId> = crowded.keys().filter(|id| !counts.contains_key(id)).copied().collect();
    if !others.is_empty() {
        let mut conn = core.pool.acquire().await.or_fail()?;
        let most = 2 * i64::from(asked.limit);
        counts.extend(rows::texts_in(&mut conn, &eligible.scope, &others, most).await.or_fail()?);
    }
    crowded.retain(|id, texts| counts.get(id).is_some_and(|count| 2 * texts.len() as i64 > *count));
    Ok(crowded)
}
