//! Which lanes may have work that nobody has claimed: what was announced of each, and what claims have found since.

use crate::{
    grant::{Lane, Lanes},
    hold::Hold,
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

const LANES: usize = Lane::ALL.len();

/// How often work of each lane had been announced at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    times: [u64; LANES],
    at: Instant,
}

#[derive(Clone, Copy)]
struct LaneNews {
    told: u64,
    /// How many of the announcements came before a claim that found too little.
    answered: u64,
    /// When the latest claim that asked for the lane began.
    asked: Instant,
}

/// A lane may have work if it was announced after the start of the last claim that found too few tasks there.
/// Announcements are counted, so that one which comes during a claim stays news, whether the dispatcher claims or the end of a task.
pub(crate) struct News(Mutex<[LaneNews; LANES]>);

impl News {
    /// At first every lane may have work.
    pub fn new() -> News {
        News(Mutex::new([LaneNews { told: 1, answered: 0, asked: Instant::now() }; LANES]))
    }

    fn lanes(&self) -> MutexGuard<'_, [LaneNews; LANES]> {
        // A panic cannot leave these numbers half-written, so a poisoned lock is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces that these lanes may have work.
    pub fn tell(&self, lanes: Lanes) {
        let mut news = self.lanes();
        for lane in lanes.iter() {
            news[lane as usize].told += 1;
        }
    }

    /// Announces those of these lanes that no claim has asked for within the last `poll`. This is what guarantees
    /// progress: it finds work that nobody announced, even if wake-ups keep the dispatcher's timer from running out.
    pub fn poll(&self, lanes: Lanes, poll: Duration) {
        let mut news = self.lanes();
        for lane in lanes.iter() {
            let lane = &mut news[lane as usize];
            if lane.asked.elapsed() >= poll {
                lane.told += 1;
            }
        }
    }

    /// What a claim that begins now has heard.
    pub fn told(&self) -> Told {
        Told { times: self.lanes().map(|lane| lane.told), at: Instant::now() }
    }

    /// Records a claim's answer: `told` is what was announced before it, `want` the tasks asked for in each lane.
    /// Returns the lanes that the claim found empty: it got too few there, and the queue did not say that there is more.
    /// Every other lane may have more, whether or not somebody announced it.
    pub fn answered(&self, told: &Told, want: &[(Lane, usize)], got: &[Hold], more: bool) -> Lanes {
        let mut lanes = self.lanes();
        let mut empty = Lanes::NONE;
        for (lane, wanted) in want {
            let news = &mut lanes[*lane as usize];
            news.asked = news.asked.max(told.at);
            if !more && got.iter().filter(|hold| hold.grant.lane == *lane).count() < *wanted {
                news.answered = news.answered.max(told.times[*lane as usize]);
                empty = empty.with(Lanes::of(*lane));
            } else if news.told == news.answered {
                news.told += 1;
            }
        }
        empty
    }

    /// The lanes that may have work.
    pub fn with_work(&self) -> Lanes {
        let news = self.lanes();
        let may_have_work = |lane: &Lane| news[*lane as usize].told > news[*lane as usize].answered;
        Lane::ALL.into_iter().filter(may_have_work).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CPU: [(Lane, usize); 1] = [(Lane::Cpu, 1)];

    #[tokio::test(start_paused = true)]
    async fn what_is_announced_during_a_claim_stays_news_whichever_claim_ends_first() {
        let news = News::new();
        let first = news.told();
        news.tell(Lanes::of(Lane::Cpu));
        let second = news.told();
        assert_eq!(news.answered(&first, &CPU, &[], false), Lanes::of(Lane::Cpu));
        assert!(news.with_work().contains(Lane::Cpu), "the first claim began before the announcement");
        assert_eq!(news.answered(&second, &CPU, &[], true), Lanes::NONE);
        assert!(news.with_work().contains(Lane::Cpu), "there is more");
        news.answered(&second, &CPU, &[], false);
        assert!(!news.with_work().contains(Lane::Cpu));
        news.answered(&first, &CPU, &[], false);
        assert!(!news.with_work().contains(Lane::Cpu), "an older answer changes nothing");
        news.answered(&news.told(), &CPU, &[], true);
        assert!(news.with_work().contains(Lane::Cpu), "there is more that nobody announced");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_polled_unless_a_claim_asked_for_it() {
        let (news, poll) = (News::new(), Duration::from_secs(1));
        let lanes = Lanes::from_iter([Lane::Cpu, Lane::Io]);
        news.answered(&news.told(), &Lane::ALL.map(|lane| (lane, 1)), &[], false);
        tokio::time::advance(poll / 2).await;
        news.answered(&news.told(), &CPU, &[], false);
        tokio::time::advance(poll / 2).await;
        news.poll(lanes, poll);
        assert_eq!(news.with_work(), Lanes::of(Lane::Io));
        tokio::time::advance(poll / 2).await;
        news.poll(lanes, poll);
        assert_eq!(news.with_work(), lanes);
    }
}
