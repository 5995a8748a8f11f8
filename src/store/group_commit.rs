//! Transactions that callers share. What comes while one is under way waits for it and is then carried out together, because a transaction, its
//! messages and its wait for the disk cost the same for many as for one. Whoever comes alone waits for nobody.
use futures_util::FutureExt;
use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::oneshot;
use tracing::instrument::WithSubscriber;

/// What one transaction takes, and when there is more than one.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most items of a transaction.
    pub items: usize,
    /// The most bytes of them; an item with more has a transaction of its own.
    pub bytes: usize,
    /// How many transactions may be under way. Another one only begins if more waits than the next one takes, or if the last one began long ago.
    pub transactions: usize,
    /// The time after which an item does not wait for the transaction before it.
    pub patience: Duration,
}

/// Items that wait for a transaction, each with who waits for its answer.
#[derive(Debug)]
pub struct GroupCommit<T, A> {
    limits: Limits,
    /// The bytes of an item.
    size: fn(&T) -> usize,
    waiting: Arc<Mutex<Waiting<T, A>>>,
}

#[derive(Debug)]
struct Waiting<T, A> {
    items: VecDeque<Item<T, A>>,
    /// The bytes of all items.
    bytes: usize,
    /// How many transactions are under way.
    transactions: usize,
    /// When the last one of them began.
    begun: Instant,
}

#[derive(Debug)]
struct Item<T, A> {
    item: T,
    bytes: usize,
    answer: oneshot::Sender<A>,
}

impl<T: Send + 'static, A: Send + 'static> GroupCommit<T, A> {
    pub fn new(limits: Limits, size: fn(&T) -> usize) -> GroupCommit<T, A> {
        let waiting = Waiting { items: VecDeque::new(), bytes: 0, transactions: 0, begun: Instant::now() };
        GroupCommit { limits, size, waiting: Arc::new(Mutex::new(waiting)) }
    }

    /// Has an item carried out by `work`, which is given items and returns an answer for each in the same order; all callers give the same work. It goes on
    /// if a caller goes away, because it is also that of others. `None` if it panicked or was cut off.
    pub async fn carry_out<W, F>(&self, item: T, work: W) -> Option<A>
    where
        W: Fn(Vec<T>) -> F + Send + Sync + 'static,
        F: Future<Output = Vec<A>> + Send,
    {
        let (answer, answered) = oneshot::channel();
        let bytes = (self.size)(&item);
        if self.join(Item { item, bytes, answer }) {
            let mut turn = Turn { limits: self.limits, waiting: self.waiting.clone(), has_ended: false };
            let all = async move {
                while let Some((items, answers)) = turn.take() {
                    // Whoever waits learns of a panic by the end of its channel.
                    let done = AssertUnwindSafe(async { work(items).await }).catch_unwind().await;
                    for (answer, is) in answers.into_iter().zip(done.into_iter().flatten()) {
                        // Whoever has gone is not told.
                        let _ = answer.send(is);
                    }
                }
            };
            tokio::spawn(all.with_current_subscriber());
        }
        answered.await.ok()
    }

    /// Returns whether the caller has to begin a transaction.
    fn join(&self, item: Item<T, A>) -> bool {
        let mut waiting = lock(&self.waiting);
        waiting.bytes += item.bytes;
        waiting.items.push_back(item);
        let Limits { items, bytes, transactions, patience } = self.limits;
        let exceeds_one = waiting.items.len() > items || waiting.bytes > bytes;
        let begins = match waiting.transactions {
            0 => true,
            some => some < transactions && (exceeds_one || waiting.begun.elapsed() > patience),
        };
        waiting.transactions += usize::from(begins);
        begins
    }
}

/// One transaction after the other, until nothing waits.
struct Turn<T, A> {
    limits: Limits,
    waiting: Arc<Mutex<Waiting<T, A>>>,
    has_ended: bool,
}

impl<T, A> Turn<T, A> {
    /// The items of the next transaction, those that came first, without those whose callers have gone; `None` if none wait, and then the turn has ended.
    fn take(&mut self) -> Option<(Vec<T>, Vec<oneshot::Sender<A>>)> {
        let mut waiting = lock(&self.waiting);
        waiting.items.retain(|item| !item.answer.is_closed());
        let mut bytes = 0;
        let fitting = waiting.items.iter().take(self.limits.items).take_while(|item| {
            bytes += item.bytes;
            bytes <= self.limits.bytes
        });
        let count = fitting.count().max(1).min(waiting.items.len());
        let taken = waiting.items.drain(..count).map(|item| (item.item, item.answer)).unzip();
        waiting.bytes = waiting.items.iter().map(|item| item.bytes).sum();
        waiting.begun = Instant::now();
        if count == 0 {
            // Nobody may join between this look and the end of the turn, so both happen under one lock.
            waiting.transactions -= 1;
            self.has_ended = true;
            return None;
        }
        Some(taken)
    }
}

impl<T, A> Drop for Turn<T, A> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let mut waiting = lock(&self.waiting);
        waiting.transactions -= 1;
        if waiting.transactions == 0 {
            // The runtime ends. Nobody else comes for those that still wait, so they learn that there is no answer.
            waiting.items.clear();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future,
        sync::atomic::{AtomicUsize, Ordering},
        task::Poll,
    };
    use tokio::sync::{Mutex as Gate, Semaphore};

    const LIMITS: Limits = Limits { items: 4, bytes: 100, transactions: 2, patience: Duration::MAX };

    /// Polls each call once, in order, so that all of them have come.
    async fn begun<F: Future>(calls: Vec<F>) -> Vec<std::pin::Pin<Box<F>>> {
        let mut calls: Vec<_> = calls.into_iter().map(Box::pin).collect();
        for call in &mut calls {
            future::poll_fn(|context| {
                assert!(call.as_mut().poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        calls
    }

    #[tokio::test]
    async fn what_comes_meanwhile_is_carried_out_together_and_each_gets_its_own_answer() {
        let groups = GroupCommit::<usize, (usize, usize)>::new(LIMITS, |item| *item);
        let gate = Arc::new(Semaphore::new(0));
        let call = |item| {
            let gate = gate.clone();
            groups.carry_out(item, move |items: Vec<usize>| {
                let gate = gate.clone();
                async move {
                    gate.acquire().await.unwrap().forget();
                    items.iter().map(|item| (*item, items.len())).collect()
                }
            })
        };
        // The first one begins at once. Of the others four fit, then 99 and 1, and 200 goes alone.
        let first = begun(vec![call(1)]).await;
        tokio::task::yield_now().await;
        let others = begun(vec![call(2), call(3), call(4), call(5)]).await;
        gate.add_permits(2);
        assert_eq!(futures_util::future::join_all(first).await, [Some((1, 1))]);
        assert_eq!(futures_util::future::join_all(others).await, [2, 3, 4, 5].map(|item| Some((item, 4))));
        let first = begun(vec![call(7)]).await;
        tokio::task::yield_now().await;
        let others = begun(vec![call(99), call(1), call(200), call(8)]).await;
        gate.add_permits(4);
        assert_eq!(futures_util::future::join_all(first).await, [Some((7, 1))]);
        let expected = [(99, 2), (1, 2), (200, 1), (8, 1)].map(Some);
        assert_eq!(futures_util::future::join_all(others).await, expected);
    }

    #[tokio::test]
    async fn a_long_line_has_more_transactions_and_never_more_than_allowed() {
        let groups = GroupCommit::<usize, usize>::new(LIMITS, |_| 1);
        let gate = Arc::new(Semaphore::new(0));
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let call = |item| {
            let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
            groups.carry_out(item, move |items: Vec<usize>| {
                let (gate, now, most) = (gate.clone(), now.clone(), most.clone());
                async move {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    gate.acquire().await.unwrap().forget();
                    now.fetch_sub(1, Ordering::SeqCst);
                    items
                }
            })
        };
        let calls = begun((0..40).map(call).collect()).await;
        tokio::task::yield_now().await;
        assert_eq!(now.load(Ordering::SeqCst), LIMITS.transactions);
        gate.add_permits(100);
        let answers = futures_util::future::join_all(calls).await;
        assert_eq!(answers, (0..40).map(Some).collect::<Vec<_>>());
        assert_eq!(most.load(Ordering::SeqCst), LIMITS.transactions);
    }

    #[tokio::test]
    async fn work_that_panics_answers_nobody_of_its_transaction_and_the_next_one_begins() {
        let groups = GroupCommit::<usize, usize>::new(LIMITS, |_| 1);
        let gate = Arc::new(Gate::new(()));
        let call = |item| {
            let gate = gate.clone();
            groups.carry_out(item, move |items: Vec<usize>| {
                let gate = gate.clone();
                async move {
                    drop(gate.lock().await);
                    assert!(!items.contains(&0), "an item that nobody can store");
                    items
                }
            })
        };
        let held = gate.lock().await;
        let first = begun(vec![call(0)]).await;
        tokio::task::yield_now().await;
        let waits = begun(vec![call(1)]).await;
        drop(held);
        assert_eq!(futures_util::future::join_all(first).await, [None]);
        assert_eq!(futures_util::future::join_all(waits).await, [Some(1)]);
        assert_eq!(call(2).await, Some(2));
    }

    #[tokio::test]
    async fn who_has_gone_before_the_turn_is_left_out() {
        let groups = GroupCommit::<usize, Vec<usize>>::new(LIMITS, |_| 1);
        let gate = Arc::new(Gate::new(()));
        let call = |item| {
            let gate = gate.clone();
            groups.carry_out(item, move |items: Vec<usize>| {
                let gate = gate.clone();
                async move {
                    drop(gate.lock().await);
                    vec![items.clone(); items.len()]
                }
            })
        };
        let held = gate.lock().await;
        let first = begun(vec![call(1)]).await;
        tokio::task::yield_now().await;
        let mut others = begun(vec![call(2), call(3)]).await;
        drop(others.remove(0));
        drop(held);
        assert_eq!(futures_util::future::join_all(first).await, [Some(vec![1])]);
        assert_eq!(futures_util::future::join_all(others).await, [Some(vec![3])]);
    }

    #[tokio::test]
    async fn nobody_waits_long_for_a_transaction_that_hangs() {
        for (limits, sizes, begin) in [
            (LIMITS, [1, 1, 1], 1),
            (Limits { patience: Duration::ZERO, ..LIMITS }, [1, 1, 1], 2),
            // More bytes wait than the next one takes.
            (LIMITS, [1, 60, 60], 2),
        ] {
            let groups = GroupCommit::<usize, usize>::new(limits, |item| *item);
            let under_way = Arc::new(AtomicUsize::new(0));
            let call = |item| {
                let under_way = under_way.clone();
                groups.carry_out(item, move |_: Vec<usize>| {
                    under_way.fetch_add(1, Ordering::SeqCst);
                    future::pending()
                })
            };
            let _first = begun(vec![call(sizes[0])]).await;
            tokio::task::yield_now().await;
            let _others = begun(vec![call(sizes[1]), call(sizes[2])]).await;
            tokio::task::yield_now().await;
            assert_eq!(under_way.load(Ordering::SeqCst), begin, "{limits:?} {sizes:?}");
        }
    }
}
