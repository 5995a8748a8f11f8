//! Random facts beside a naive set of cells: what is believed of each day, at every moment that the store knew something.
use super::{day, doc, fact, predicate};
use crate::{
    access::Random,
    principals::idle,
    support::{TestApp, invariants},
};
use chrono::{DateTime, Utc};
use std::collections::{BTreeMap, BTreeSet};
use svc_client::{
    Json, OptionalJson,
    wire::{
        ChangedFact, DiffQuery, FactChange, FactPath, FactQuery, FactResponse, Invalidation, NewFact, NewFacts,
        OnOverlap, Supersession, ValidAt,
    },
};

/// Bounds are the days 1 to 14; the cells 0 and 14 stand for all before and after.
const DAYS: u32 = 14;

/// The first day and the day after the last.
type Bounds = (Option<u32>, Option<u32>);
/// A fact's id, when it was recorded and closed, and the moment of the clock.
type Recorded = (i64, DateTime<Utc>, Option<DateTime<Utc>>, DateTime<Utc>);
/// What a fact says of one day.
type Cell = (i64, String, i64, u32);

/// The cells that a fact with these bounds covers.
fn cells(from: Option<u32>, until: Option<u32>) -> std::ops::Range<u32> {
    from.unwrap_or(0)..until.unwrap_or(DAYS + 1)
}

fn bounds(random: &mut Random) -> Bounds {
    let from = 1 + random.below(DAYS as usize - 1) as u32;
    let until = from + 1 + random.below((DAYS - from) as usize) as u32;
    (Some(from).filter(|_| random.below(6) > 0), Some(until).filter(|_| random.below(4) > 0))
}

/// The cells of facts as the store answers; no cell twice.
fn told(facts: &[FactResponse]) -> BTreeSet<Cell> {
    let number =
        |bound: Option<DateTime<Utc>>| bound.map(|bound| (1..=DAYS).find(|number| day(*number) == bound).unwrap());
    let mut all = BTreeSet::new();
    for fact in facts {
        for cell in cells(number(fact.valid_from), number(fact.valid_until)) {
            let cell = (fact.subject_id, fact.predicate.clone(), fact.object_id.unwrap(), cell);
            assert!(all.insert(cell), "two facts say the same of one day: {fact:?}");
        }
    }
    all
}

async fn known(app: &TestApp, known_at: Option<DateTime<Utc>>) -> (Vec<FactResponse>, DateTime<Utc>) {
    let query = FactQuery { valid_at: Some(ValidAt::Any), known_at, limit: Some(1000), ..FactQuery::default() };
    let page = app.client.list_facts(query).await.unwrap();
    assert_eq!(page.next_cursor, None);
    (page.facts, page.known_at)
}

#[tokio::test]
async fn ten_thousand_random_changes_equal_a_set_of_days_at_every_time_that_was_known() {
    for seed in [7, 1009] {
        let app = idle().await;
        let mut random = Random(seed);
        let mut docs = Vec::new();
        for number in 0..6 {
            docs.push(doc(&app, &format!("Document {number}")).await);
        }
        for name in ["a", "b"] {
            predicate(&app, name).await;
        }
        let (mut now, mut history) = (BTreeSet::<Cell>::new(), BTreeMap::new());
        let mut changes = 0;
        let (mut believed, _) = known(&app, None).await;
        while changes < 5_000 {
            if random.below(10) < 6 || believed.is_empty() {
                let new: Vec<(NewFact, Bounds)> = (0..1 + random.below(120))
                    .map(|_| {
                        let (from, until) = bounds(&mut random);
                        let [subject, object] = [docs[random.below(3)], docs[3 + random.below(3)]];
                        let fact = fact(subject, ["default:a", "default:b"][random.below(2)], object);
                        (NewFact { valid_from: from.map(day), valid_until: until.map(day), ..fact }, (from, until))
                    })
                    .collect();
                changes += new.len();
                // A batch that would overlap is refused as a whole.
                let on_overlap = [OnOverlap::Reject, OnOverlap::Merge][usize::from(random.below(5) > 0)];
                let (mut then, mut overlaps) = (now.clone(), false);
                for (fact, (from, until)) in &new {
                    for cell in cells(*from, *until) {
                        overlaps |= !then.insert((
                            fact.subject_id.unwrap(),
                            fact.predicate.clone().unwrap(),
                            fact.object_id.unwrap(),
                            cell,
                        ));
                    }
                }
                let facts = new.into_iter().map(|(fact, _)| fact).collect();
                let done = app.client.assert_facts(Json(NewFacts { facts, on_overlap: Some(on_overlap) })).await;
                assert_eq!(done.is_err(), overlaps && on_overlap == OnOverlap::Reject);
                now = if done.is_ok() { then } else { now };
            } else {
                changes += 1;
                let old = &believed[random.below(believed.len())];
                let (from, until) = bounds(&mut random);
                let own: BTreeSet<u32> = told(std::slice::from_ref(old)).into_iter().map(|cell| cell.3).collect();
                let hit: Vec<u32> = cells(from, until).filter(|cell| own.contains(cell)).collect();
                let cell = |object: i64, cell: u32| (old.subject_id, old.predicate.clone(), object, cell);
                let [valid_from, valid_until] = [from.map(day), until.map(day)];
                if random.below(2) == 0 {
                    let what = Invalidation { valid_from, valid_until, reason: None };
                    let done = app.client.invalidate_fact(FactPath { id: old.id }, OptionalJson(Some(what))).await;
                    assert_eq!(done.is_ok(), !hit.is_empty());
                    hit.iter().for_each(|day| assert!(now.remove(&cell(old.object_id.unwrap(), *day))));
                } else {
                    let object = docs[3 + random.below(3)];
                    // Without bounds it is a correction of the whole.
                    let span: Vec<u32> = if from.or(until).is_none() {
                        own.iter().copied().collect()
                    } else {
                        cells(from, until).collect()
                    };
                    let taken = span.iter().any(|day| now.contains(&cell(object, *day)));
                    let what =
                        Supersession { object_id: Some(object), valid_from, valid_until, ..Supersession::default() };
                    let done = app.client.supersede_fact(FactPath { id: old.id }, Json(what)).await;
                    let right = span.iter().any(|day| own.contains(day)) && Some(object) != old.object_id && !taken;
                    assert_eq!(done.is_ok(), right, "{done:?}");
                    if right {
                        now.retain(|known| !span.iter().any(|day| *known == cell(old.object_id.unwrap(), *day)));
                        now.extend(span.iter().map(|day| cell(object, *day)));
                    }
                }
            }
            // Nobody else writes, so the next change begins with what is believed now.
            let (next, at) = known(&app, None).await;
            believed = next;
            assert_eq!(told(&believed), now, "seed {seed} after {changes} changes");
            history.insert(at, now.clone());
        }
        // Every time that was known reads as it did then, also between two.
        for (at, then) in &history {
            assert_eq!(&told(&known(&app, Some(*at)).await.0), then);
        }
        // What was known, and what changed after it, is what was known later.
        let moments: Vec<(&DateTime<Utc>, &BTreeSet<Cell>)> = history.iter().collect();
        for _ in 0..30 {
            let mut two = [random.below(moments.len()), random.below(moments.len())];
            two.sort_unstable();
            let [(from, before), (to, after)] = two.map(|at| moments[at]);
            let query = DiffQuery { known_from: Some(*from), known_to: Some(*to), ..DiffQuery::default() };
            let changes = changes_of(&app, query, &mut random).await;
            // Nothing is told of what became of these facts later.
            assert!(changes.iter().all(|change| {
                let is_gone = change.kind != FactChange::Added;
                let is_as_then = change.fact.invalidated_at.map_or(!is_gone, |at| is_gone && at <= *to);
                is_as_then && change.by.as_ref().is_none_or(|by| by.invalidated_at.is_none())
            }));
            let of = |kind: FactChange| changes.iter().filter(move |change| change.kind == kind);
            let gone = of(FactChange::Removed).chain(of(FactChange::Superseded)).map(|change| change.fact.clone());
            let new = of(FactChange::Added)
                .map(|change| &change.fact)
                .chain(changes.iter().filter_map(|change| change.by.as_ref()));
            let new: BTreeMap<i64, FactResponse> = new.map(|fact| (fact.id, fact.clone())).collect();
            let (gone, new) = (told(&gone.collect::<Vec<_>>()), told(&new.into_values().collect::<Vec<_>>()));
            assert!(gone.is_subset(before) && new.is_subset(after));
            assert_eq!(&before.difference(&gone).chain(&new).cloned().collect::<BTreeSet<_>>(), after);
        }
        // So it is with what holds on two days.
        for _ in 0..30 {
            let days = [random.below(DAYS as usize), random.below(DAYS as usize)].map(|day| day as u32 + 1);
            let holds = |day: u32| -> BTreeSet<(i64, String, i64)> {
                now.iter().filter(|cell| cell.3 == day).map(|cell| (cell.0, cell.1.clone(), cell.2)).collect()
            };
            let [valid_from, valid_to] = days.map(|number| Some(day(number)));
            let changes =
                changes_of(&app, DiffQuery { valid_from, valid_to, ..DiffQuery::default() }, &mut random).await;
            let of = |kind: FactChange| -> BTreeSet<(i64, String, i64)> {
                let of_kind = changes.iter().filter(|change| change.kind == kind).map(|change| &change.fact);
                of_kind.map(|fact| (fact.subject_id, fact.predicate.clone(), fact.object_id.unwrap())).collect()
            };
            let [before, after] = days.map(holds);
            assert_eq!(of(FactChange::Added), after.difference(&before).cloned().collect());
            assert_eq!(of(FactChange::Removed), before.difference(&after).cloned().collect());
        }
        invariants::check(&app.pool).await;
        app.end().await;
    }
}

/// All changes between two moments, read in pages of a random size, with and without a kind.
async fn changes_of(app: &TestApp, query: DiffQuery, random: &mut Random) -> Vec<ChangedFact> {
    let (mut all, mut counts) = (Vec::new(), BTreeMap::new());
    let kinds = [Some(FactChange::Added), Some(FactChange::Removed), Some(FactChange::Superseded)];
    let kinds = if random.below(2) == 0 { &kinds[..] } else { &[None] };
    for kind in kinds {
        let mut query = DiffQuery { kind: *kind, limit: Some(1 + random.below(1000) as u32), ..query.clone() };
        loop {
            let page = app.client.compare_facts(query.clone()).await.unwrap();
            counts =
                BTreeMap::from([("added", page.added), ("removed", page.removed), ("superseded", page.superseded)]);
            all.extend(page.changes);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
    }
    for (kind, count) in counts {
        assert_eq!(all.iter().filter(|change| change.kind.as_str() == kind).count() as u64, count, "{kind}");
    }
    assert!(all.iter().all(|change| change.by.is_some() == (change.kind == FactChange::Superseded)));
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_never_overlap_and_what_was_known_stays_known() {
    let app = idle().await;
    let [a, b, c] = [doc(&app, "A").await, doc(&app, "B").await, doc(&app, "C").await];
    predicate(&app, "a").await;
    let writers = (0..8_u64).map(|seed| {
        let client = app.client.clone();
        tokio::spawn(async move {
            let mut random = Random(seed * 31 + 1);
            for _ in 0..25 {
                let facts = (0..4).map(|_| {
                    let (from, until) = bounds(&mut random);
                    NewFact {
                        valid_from: from.map(day),
                        valid_until: until.map(day),
                        ..fact(a, "a", [b, c][random.below(2)])
                    }
                });
                let facts = NewFacts { facts: facts.collect(), on_overlap: Some(OnOverlap::Merge) };
                let done = client.assert_facts(Json(facts)).await.unwrap();
                // Another writer may have taken it in already.
                let id = done.facts[random.below(4)].id;
                let (valid_from, valid_until) = bounds(&mut random);
                let [valid_from, valid_until] = [valid_from.map(day), valid_until.map(day)];
                let what = Invalidation { valid_from, valid_until, reason: None };
                let _ = client.invalidate_fact(FactPath { id }, OptionalJson(Some(what))).await;
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let (mut read, mut times) = (Vec::new(), BTreeSet::new());
    let (mut seen, mut before) = (BTreeSet::new(), DateTime::<Utc>::MIN_UTC);
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        // The order of commits is the order of what is recorded: whatever is new since the last look was recorded and closed after it.
        let rows: Vec<Recorded> = sqlx::query_as(
            "SELECT t.id, t.recorded_at, t.invalidated_at, c.at FROM triples t CROSS JOIN knowledge_clock c",
        )
        .fetch_all(&app.pool)
        .await
        .unwrap();
        for (id, recorded_at, invalidated_at, at) in &rows {
            assert!(!seen.insert((*id, false)) || *recorded_at > before, "fact {id} was recorded before {before}");
            if let Some(invalidated_at) = invalidated_at {
                assert!(!seen.insert((*id, true)) || *invalidated_at > before, "fact {id} was closed before {before}");
                assert!(invalidated_at <= at, "fact {id} was closed after {at}");
            }
            assert!(recorded_at <= at, "fact {id} was recorded after {at}");
        }
        before = rows.first().map_or(before, |(.., at)| *at);
        let (facts, at) = known(&app, None).await;
        if times.insert(at) {
            read.push((at, told(&facts)));
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert!(read.len() > 3, "the reader was too slow to see anything");
    for (at, then) in read {
        assert_eq!(told(&known(&app, Some(at)).await.0), then);
    }
    app.end().await;
}
