use super::*;
use chrono::{DateTime, Utc};
use proptest::prelude::*;

/// The days 1 to 5, on which bounds are; the cells 0 and 5 stand for all before and after.
const CELLS: std::ops::RangeInclusive<i64> = 0..=5;
const NODES: i64 = 5;
const ZONES: [i64; 3] = [OPEN, 101, 102];

type Statement = (i64, i64, Object);

/// What follows in every zone.
fn derive_all(
    facts: &[Fact],
    rules: &[Rule],
    guards: &BTreeMap<i64, i64>,
    most: usize,
) -> Result<Vec<Derived>, TooMuch> {
    let closed = derive(facts, rules, guards, &BTreeSet::new(), most)?;
    assert!(closed.given_up.is_empty(), "{:?}", closed.given_up);
    Ok(closed.derived)
}

fn day(day: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(day * 86_400, 0).unwrap_or_default()
}

fn has(time: Interval, cell: i64) -> bool {
    time.from.is_none_or(|from| from <= day(cell)) && time.until.is_none_or(|until| day(cell) < until)
}

fn times() -> impl Strategy<Value = Interval> {
    (prop::option::of(1..5_i64), prop::option::of(2..6_i64)).prop_filter_map("empty", |(from, until)| {
        let is_empty = from.zip(until).is_some_and(|(from, until)| from >= until);
        (!is_empty).then(|| Interval { from: from.map(day), until: until.map(day) })
    })
}

fn objects() -> impl Strategy<Value = Object> {
    prop_oneof![5 => (0..NODES).prop_map(Object::Node), 1 => (0..2_usize).prop_map(Object::Literal)]
}

fn zones() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(OPEN), 1 => Just(ZONES[1]), 1 => Just(ZONES[2])]
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..4_i64, 0..4_i64, any::<bool>()).prop_map(|(from, to, turned)| Step::Copied { from, to, turned }),
        (0..4_i64).prop_map(|one| Step::Joined { first: one, then: one }),
        (0..4_i64, 0..4_i64).prop_map(|(first, then)| Step::Joined { first, then }),
    ]
}

/// Facts of which no two of a statement and a zone overlap.
fn facts() -> impl Strategy<Value = Vec<Fact>> {
    prop::collection::vec((0..NODES, 0..4_i64, objects(), zones(), times()), 0..14).prop_map(|drawn| {
        let mut facts: Vec<Fact> = Vec::new();
        for (id, (subject, predicate, object, zone, time)) in (1..).zip(drawn) {
            let is_same = |fact: &&Fact| {
                (fact.subject, fact.predicate, fact.object, fact.zone) == (subject, predicate, object, zone)
            };
            if !facts.iter().filter(is_same).any(|fact| fact.time.overlaps(time)) {
                facts.push(Fact { id, subject, predicate, object, zone, time });
            }
        }
        facts
    })
}

/// All that holds in a cell for who may read one zone beside what is open to all.
fn naive(facts: &[Fact], rules: &[Rule], guards: &BTreeMap<i64, i64>, zone: i64, cell: i64) -> BTreeSet<Statement> {
    let sees = |of: i64| of == OPEN || of == zone;
    let passes = |node: i64| sees(guards.get(&node).copied().unwrap_or(OPEN));
    let there = facts.iter().filter(|fact| sees(fact.zone) && has(fact.time, cell));
    let mut all: BTreeSet<Statement> = there.map(|fact| (fact.subject, fact.predicate, fact.object)).collect();
    loop {
        let mut more = all.clone();
        for rule in rules.iter().filter(|rule| sees(rule.zone)) {
            for (subject, predicate, object) in &all {
                match (rule.step, object) {
                    (Step::Copied { from, to, turned: false }, _) if from == *predicate => {
                        more.insert((*subject, to, *object));
                    }
                    (Step::Copied { from, to, turned: true }, Object::Node(node)) if from == *predicate => {
                        more.insert((*node, to, Object::Node(*subject)));
                    }
                    (Step::Joined { first, then }, Object::Node(node)) if first == *predicate && passes(*node) => {
                        let next = all.iter().filter(|next| next.0 == *node && next.1 == then);
                        more.extend(
                            next.filter(|next| matches!(next.2, Object::Node(_))).map(|next| (*subject, first, next.2)),
                        );
                    }
                    _ => {}
                }
            }
        }
        if more.len() == all.len() {
            return all;
        }
        all = more;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_is_derived_is_the_naive_closure_in_every_zone_at_every_moment(
        facts in facts(),
        rules in prop::collection::vec((steps(), zones()), 0..5),
        guards in prop::collection::btree_map(0..NODES, prop_oneof![Just(ZONES[1]), Just(ZONES[2])], 0..2),
    ) {
        let rules: Vec<Rule> = rules.into_iter().map(|(step, zone)| Rule { step, zone }).collect();
        let derived = derive_all(&facts, &rules, &guards, 100_000).expect("little follows");
        for cell in CELLS {
            let open = naive(&facts, &rules, &guards, OPEN, cell);
            for zone in ZONES {
                let mut right = naive(&facts, &rules, &guards, zone, cell);
                right.retain(|statement| zone == OPEN || !open.contains(statement));
                for fact in facts.iter().filter(|fact| fact.zone == zone && has(fact.time, cell)) {
                    right.remove(&(fact.subject, fact.predicate, fact.object));
                }
                let there = derived.iter().filter(|fact| fact.zone == zone && has(fact.time, cell));
                let found: Vec<Statement> = there.map(|fact| (fact.subject, fact.predicate, fact.object)).collect();
                prop_assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), right, "zone {} in cell {}", zone, cell);
                prop_assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), found.len(), "one fact a moment");
            }
        }
        let zone_of = |premise: &Premise| match premise {
            Premise::Asserted(id) => facts.iter().find(|fact| fact.id == *id).map(|fact| fact.zone),
            Premise::Derived(at) => derived.get(*at).map(|fact| fact.zone),
        };
        for (at, fact) in derived.iter().enumerate() {
            prop_assert!(!fact.premises.is_empty() && !fact.premises.contains(&Premise::Derived(at)), "{:?}", fact);
            prop_assert!(fact.premises.iter().all(|premise| [Some(OPEN), Some(fact.zone)].contains(&zone_of(premise))));
            let joins = |other: &&Derived| {
                (other.subject, other.predicate, other.object, other.zone) == (fact.subject, fact.predicate, fact.object, fact.zone)
                    && (other.time.meets(fact.time) || fact.time.meets(other.time))
            };
            prop_assert!(derived.iter().find(joins).is_none(), "{:?} goes on", fact);
        }
    }
}

/// A chain of facts with a transitive predicate.
fn chain(length: i64) -> Vec<Fact> {
    let fact =
        |id| Fact { id, subject: id, predicate: 1, object: Object::Node(id + 1), zone: OPEN, time: Interval::ALWAYS };
    (1..=length).map(fact).collect()
}

#[test]
fn a_group_is_given_up_as_a_whole_at_its_limit() {
    let rules = [Rule { step: Step::Joined { first: 1, then: 1 }, zone: OPEN }];
    // A chain of n facts leads to n (n - 1) / 2 more.
    let of = |most| derive_all(&chain(20), &rules, &BTreeMap::new(), most).map(|derived| derived.len());
    assert_eq!(of(190), Ok(190));
    assert_eq!(of(189), Err(TooMuch));
    assert_eq!(of(0), Err(TooMuch));
    assert_eq!(derive_all(&chain(2_000), &rules, &BTreeMap::new(), 1_000).err(), Some(TooMuch));
}

/// A fact that holds for one day.
fn on(id: i64, subject: i64, object: i64, zone: i64, number: i64) -> Fact {
    let time = Interval { from: Some(day(number)), until: Some(day(number + 1)) };
    Fact { id, subject, predicate: 1, object: Object::Node(object), zone, time }
}

#[test]
fn a_group_is_given_up_that_takes_too_many_looks_even_if_nothing_follows() {
    let rules = [Rule { step: Step::Joined { first: 1, then: 1 }, zone: OPEN }];
    // What leads to the hub ends before what leads away from it begins.
    let of = |ends: i64| {
        let into = (1..=ends).map(|id| on(id, id, 0, OPEN, id));
        let out = (1..=ends).map(|id| on(ends + id, 0, ends + id, OPEN, ends + id));
        derive_all(&into.chain(out).collect::<Vec<_>>(), &rules, &BTreeMap::new(), 1).map(|derived| derived.len())
    };
    assert_eq!(of(500), Ok(0));
    assert_eq!(of(3_000), Err(TooMuch));
}

#[test]
fn a_zone_does_not_look_at_the_facts_of_the_others() {
    let rules = [Rule { step: Step::Joined { first: 1, then: 1 }, zone: OPEN }];
    let zones = 5_000;
    let pair = |zone| [on(zone, zone, 0, zone, 1), on(zones + zone, 0, zones + zone, zone, 1)];
    let facts: Vec<Fact> = (1..=zones).flat_map(pair).collect();
    let derived = derive_all(&facts, &rules, &BTreeMap::new(), 5_000).unwrap();
    assert_eq!(derived.len(), 5_000);
    for (fact, zone) in derived.iter().zip(1..) {
        assert_eq!((fact.zone, fact.subject, fact.object), (zone, zone, Object::Node(zones + zone)));
        assert_eq!(fact.premises, [Premise::Asserted(zone), Premise::Asserted(zones + zone)]);
    }
}

#[test]
fn a_statement_may_hold_for_many_times() {
    let rules = [Rule { step: Step::Copied { from: 1, to: 2, turned: true }, zone: OPEN }];
    let days = 50_000;
    // Every second day, the last one first.
    let facts: Vec<Fact> = (1..=days).map(|id| on(id, 7, 8, OPEN, 2 * (days - id))).collect();
    let derived = derive_all(&facts, &rules, &BTreeMap::new(), 50_000).unwrap();
    assert_eq!(derived.len(), 50_000);
    assert!(derived.windows(2).all(|two| two[0].time.until < two[1].time.from));
}

#[test]
fn what_is_too_much_in_one_zone_is_given_up_there_alone() {
    let (theirs, others) = (ZONES[1], ZONES[2]);
    // In one zone all that is open is transitive, and what follows is copied; another zone has facts of its own.
    let rules = [
        Rule { step: Step::Copied { from: 2, to: 2, turned: true }, zone: OPEN },
        Rule { step: Step::Joined { first: 1, then: 1 }, zone: theirs },
        Rule { step: Step::Copied { from: 1, to: 2, turned: false }, zone: theirs },
    ];
    let near = |id, zone| Fact {
        id,
        subject: 100 * id,
        predicate: 2,
        object: Object::Node(100 * id + 1),
        zone,
        time: Interval::ALWAYS,
    };
    let facts: Vec<Fact> = chain(20).into_iter().chain([near(50, OPEN), near(51, others), near(52, theirs)]).collect();
    let shown = |closed: &Closed| {
        let all = closed.derived.iter().map(|fact| (fact.zone, fact.subject, fact.premises.clone()));
        all.collect::<Vec<_>>()
    };
    let turned = |id: i64, zone| (zone, 100 * id + 1, vec![Premise::Asserted(id)]);
    let few = derive(&facts, &rules, &BTreeMap::new(), &BTreeSet::new(), 100).unwrap();
    assert_eq!(few.given_up, BTreeSet::from([theirs]));
    assert_eq!(shown(&few), [turned(50, OPEN), turned(51, others)]);
    // A zone may have as many as all others.
    let pair = |zone| (1..=100).map(move |id| near(100 * zone + id, zone));
    let many: Vec<Fact> = pair(OPEN).chain(pair(others)).chain(pair(theirs)).collect();
    assert_eq!(derive_all(&many, &rules[..1], &BTreeMap::new(), 100).map(|derived| derived.len()), Ok(300));
    let left_out = derive(&facts, &rules, &BTreeMap::new(), &BTreeSet::from([others]), 10_000).unwrap();
    assert_eq!(left_out.given_up, BTreeSet::from([others]));
    assert!(left_out.derived.iter().all(|fact| fact.zone != others));
    assert!(left_out.derived.iter().filter(|fact| fact.zone == theirs).count() > 190);
}

#[test]
fn a_zone_that_takes_many_looks_leaves_the_others_theirs() {
    let rules = [Rule { step: Step::Joined { first: 1, then: 1 }, zone: OPEN }];
    let (busy, calm) = (ZONES[1], ZONES[2]);
    let into = (1..=3_000).map(|id| on(id, id, 0, busy, id));
    let out = (1..=3_000).map(|id| on(3_000 + id, 0, 3_000 + id, busy, 3_000 + id));
    let few = [on(9_001, 1, 2, calm, 1), on(9_002, 2, 3, calm, 1)];
    let facts: Vec<Fact> = into.chain(out).chain(few).collect();
    let closed = derive(&facts, &rules, &BTreeMap::new(), &BTreeSet::new(), 1).unwrap();
    assert_eq!(closed.given_up, BTreeSet::from([busy]));
    let found = closed.derived.iter().map(|fact| (fact.zone, fact.subject, fact.object));
    assert_eq!(found.collect::<Vec<_>>(), [(calm, 1, Object::Node(3))]);
}
