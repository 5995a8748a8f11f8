//! A model of claim, lease and fence, explored in every interleaving within its bounds: two workers, three tasks with
//! overlapping regions, expiring leases, zombies that commit late, and a server whose crash loses commits that did not
//! wait for the disk. Controls show that the model would notice a wrong protocol.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use stateright::{Checker, HasDiscoveries, Model, Property};
use std::collections::BTreeSet;

const WORKERS: usize = 2;
/// A root with its subtree, and two of its children: the first region overlaps both others.
const REGIONS: [u8; 3] = [0b111, 0b010, 0b100];
const TASKS: usize = REGIONS.len();

/// What is explored, and what the controls leave out.
#[derive(Clone, Copy)]
struct Protocol {
    /// True: a token is never repeated. False: it is the task's attempt number, which a crash of the server takes back.
    random_tokens: bool,
    /// The end of a task checks its token.
    fenced: bool,
    /// A claim looks at the existing reservations.
    reserves: bool,
    /// How many claims, and how many crashes of the server, are explored.
    claims: u8,
    crashes: u8,
}

const SOUND: Protocol = Protocol { random_tokens: true, fenced: true, reserves: true, claims: 4, crashes: 1 };

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Status {
    #[default]
    Pending,
    Claimed,
    Running,
    Completed,
}

/// A row of the queue with its reservation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Row {
    status: Status,
    token: Option<u8>,
    reserved: Option<u8>,
    /// There was no heartbeat for the length of a lease.
    silent: bool,
    /// The answer to its claim was lost.
    unheard: bool,
    attempts: u8,
    effects: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    rows: [Row; TASKS],
    /// What a crash of the server leaves: the state when somebody last waited for the disk.
    on_disk: [Row; TASKS],
    /// The task that a worker believes it holds, its token, and whether it was started.
    held: [Option<(usize, u8, bool)>; WORKERS],
    claims: u8,
    crashes: u8,
    /// How many answers to claims were lost; one is explored.
    lost_answers: u8,
}

impl State {
    fn holds(&self, task: usize) -> bool {
        matches!(self.rows[task].status, Status::Claimed | Status::Running)
    }

    /// Whether this task's region overlaps one that another task has reserved.
    fn is_blocked(&self, task: usize) -> bool {
        (0..TASKS)
            .any(|other| other != task && self.rows[other].reserved.is_some() && REGIONS[other] & REGIONS[task] != 0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Action {
    Claim {
        worker: usize,
        task: usize,
    },
    Start {
        worker: usize,
    },
    Beat {
        worker: usize,
    },
    Commit {
        worker: usize,
    },
    /// Ends a task and claims another in one message, whose answer is lost. If the answer arrives, this is a commit and
    /// a claim.
    CommitAndClaim {
        worker: usize,
        next: usize,
    },
    /// Its worker's heartbeat gives back a task that the worker does not know it claimed.
    Recognise {
        task: usize,
    },
    GiveBack {
        worker: usize,
    },
    Die {
        worker: usize,
    },
    FallSilent {
        task: usize,
    },
    Reap {
        task: usize,
    },
    CrashServer,
}

impl Protocol {
    fn claim(&self, state: &mut State, task: usize) -> (usize, u8, bool) {
        state.claims += 1;
        let row = &mut state.rows[task];
        row.attempts += 1;
        let token = if self.random_tokens { state.claims } else { row.attempts };
        *row = Row { status: Status::Claimed, token: Some(token), reserved: Some(token), silent: false, ..*row };
        (task, token, false)
    }

    fn commit(&self, state: &mut State, worker: usize) {
        let Some((task, token, _)) = state.held[worker].take() else { return };
        let row = &mut state.rows[task];
        if !self.fenced || (row.token == Some(token) && matches!(row.status, Status::Claimed | Status::Running)) {
            *row = Row { status: Status::Completed, token: None, reserved: None, effects: row.effects + 1, ..*row };
            state.on_disk = state.rows;
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let rows = [Row::default(); TASKS];
        vec![State { rows, on_disk: rows, held: [None; WORKERS], claims: 0, crashes: 0, lost_answers: 0 }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for worker in 0..WORKERS {
            match state.held[worker] {
                None => actions.extend(
                    (0..TASKS)
                        .filter(|task| state.rows[*task].status == Status::Pending)
                        .filter(|task| !self.reserves || !state.is_blocked(*task))
                        .map(|task| Action::Claim { worker, task }),
                ),
                Some(_) => {
                    // A short task ends without a separate start, and one whose answer was lost is asked for again.
                    actions.extend([Action::Start { worker }, Action::Commit { worker }]);
                    actions.extend([Action::Beat { worker }, Action::GiveBack { worker }, Action::Die { worker }]);
                    actions.extend((0..TASKS).map(|next| Action::CommitAndClaim { worker, next }));
                }
            }
        }
        for task in 0..TASKS {
            if state.rows[task].unheard {
                actions.push(Action::Recognise { task });
            }
            if state.holds(task) {
                actions.push(if state.rows[task].silent { Action::Reap { task } } else { Action::FallSilent { task } });
            }
        }
        if state.crashes < self.crashes {
            actions.push(Action::CrashServer);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Claim { worker, task } => {
                if state.claims == self.claims {
                    return None;
                }
                state.held[worker] = Some(self.claim(&mut state, task));
                // Not yet on disk.
            }
            Action::CommitAndClaim { worker, next } => {
                let (task, token, _) = state.held[worker]?;
                if state.claims == self.claims || state.lost_answers == 1 || state.rows[task].token != Some(token) {
                    return None;
                }
                self.commit(&mut state, worker);
                if state.rows[next].status != Status::Pending || (self.reserves && state.is_blocked(next)) {
                    return None;
                }
                self.claim(&mut state, next);
                state.rows[next].unheard = true;
                state.lost_answers += 1;
            }
            Action::Recognise { task } => {
                let row = &mut state.rows[task];
                *row = Row { status: Status::Pending, token: None, reserved: None, unheard: false, ..*row };
                state.on_disk = state.rows;
            }
            Action::Start { worker } => {
                let (task, token, _) = state.held[worker]?;
                let row = &mut state.rows[task];
                let ours = row.token == Some(token) && matches!(row.status, Status::Claimed | Status::Running);
                if ours {
                    row.status = Status::Running;
                    row.silent = false;
                }
                state.held[worker] = ours.then_some((task, token, true));
            }
            Action::Beat { worker } => {
                let (task, token, _) = state.held[worker]?;
                let row = &mut state.rows[task];
                match row.token == Some(token) {
                    true => row.silent = false,
                    false => state.held[worker] = None,
                }
            }
            Action::Commit { worker } => {
                state.held[worker]?;
                self.commit(&mut state, worker);
            }
            Action::GiveBack { worker } => {
                let (task, token, _) = state.held[worker]?;
                let row = &mut state.rows[task];
                if row.token == Some(token) {
                    *row = Row { status: Status::Pending, token: None, reserved: None, ..*row };
                    state.on_disk = state.rows;
                }
                state.held[worker] = None;
            }
            Action::Die { worker } => state.held[worker] = None,
            Action::FallSilent { task } => state.rows[task].silent = true,
            Action::Reap { task } => {
                let row = &mut state.rows[task];
                *row =
                    Row { status: Status::Pending, token: None, reserved: None, silent: false, unheard: false, ..*row };
                state.on_disk = state.rows;
            }
            Action::CrashServer => {
                state.crashes += 1;
                state.rows = state.on_disk;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::<Self>::always("no two held regions overlap", |_, state| {
                (0..TASKS).all(|task| !state.holds(task) || !state.is_blocked(task))
            }),
            Property::<Self>::always("an effect happens once", |_, state| {
                state.rows.iter().all(|row| row.effects <= 1)
            }),
            Property::<Self>::always("completed if and only if there was an effect", |_, state| {
                state.rows.iter().all(|row| (row.status == Status::Completed) == (row.effects > 0))
            }),
            Property::<Self>::always("held if and only if reserved by the same token", |_, state| {
                (0..TASKS).all(|task| state.holds(task) == state.rows[task].reserved.is_some())
                    && state.rows.iter().all(|row| row.token == row.reserved)
            }),
            Property::<Self>::always("only the latest claim can end a task", |_, state| {
                let live = |(task, token, _): (usize, u8, bool)| state.rows[task].token == Some(token);
                (0..TASKS)
                    .all(|task| state.held.iter().flatten().filter(|held| held.0 == task && live(**held)).count() <= 1)
            }),
            Property::<Self>::sometimes("everything is done", |_, state| {
                state.rows.iter().all(|row| row.status == Status::Completed)
            }),
            Property::<Self>::sometimes("a grant that nobody heard of comes back and is done", |_, state| {
                state.lost_answers == 1 && state.rows.iter().all(|row| row.status == Status::Completed)
            }),
            Property::<Self>::sometimes("a zombie comes too late", |_, state| {
                state.held.iter().flatten().any(|(task, token, started)| {
                    *started && state.rows[*task].token != Some(*token) && state.rows[*task].status == Status::Completed
                })
            }),
        ]
    }
}

#[test]
fn no_interleaving_overlaps_or_does_anything_twice() {
    let checker = SOUND.checker().threads(2).spawn_bfs().join();
    println!("{} states", checker.unique_state_count());
    checker.assert_properties();
    assert!(checker.unique_state_count() > 10_000, "the bounds are too narrow to mean anything");
}

/// Checks that a wrong protocol breaks this property.
fn broken(protocol: Protocol, property: &'static str) {
    let found = HasDiscoveries::AnyOf(BTreeSet::from([property]));
    let checker = protocol.checker().threads(2).finish_when(found).spawn_bfs().join();
    let path = checker.discovery(property);
    assert!(path.is_some(), "nothing broke {property:?}: the model would not notice");
    println!("{property}: {:?}", path.unwrap().into_actions());
}

#[test]
fn without_the_fence_a_zombie_does_it_twice() {
    broken(Protocol { fenced: false, ..SOUND }, "an effect happens once");
}

#[test]
fn with_attempt_numbers_for_tokens_a_crash_gives_one_token_to_two_workers() {
    broken(Protocol { random_tokens: false, ..SOUND }, "only the latest claim can end a task");
}

#[test]
fn without_the_reservation_regions_overlap() {
    broken(Protocol { reserves: false, ..SOUND }, "no two held regions overlap");
}
