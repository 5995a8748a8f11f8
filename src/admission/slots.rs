//! Slots of one kind, of which one principal may hold only a share.
use super::PATIENCE;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};
use svc_ids::PrincipalId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Fewer principals are never looked through for those that hold nothing any more.
const FEW: usize = 1024;

/// A slot, which becomes free when this is dropped.
#[derive(Debug)]
pub struct Place {
    _all: OwnedSemaphorePermit,
    /// The part of a principal's share that this is; the owner has no share to keep to.
    _own: Option<OwnedSemaphorePermit>,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The principal holds its share.
    Share,
    /// All callers together hold all slots.
    All,
}

/// The slots that clients may hold for as long as they are slow.
pub struct Slots {
    all: Arc<Semaphore>,
    /// The most that one principal may hold.
    share: usize,
    own: Mutex<Shares>,
}

struct Shares {
    /// A share lives as long as a part of it is held or waited for.
    of: HashMap<PrincipalId, Weak<Semaphore>>,
    /// The number of principals at which those without a share are dropped.
    sweep_at: usize,
}

impl Slots {
    pub fn new(all: usize, share: usize) -> Slots {
        let own = Mutex::new(Shares { of: HashMap::new(), sweep_at: FEW });
        Slots { all: Arc::new(Semaphore::new(all.min(Semaphore::MAX_PERMITS))), share, own }
    }

    /// The share of a principal.
    fn own(&self, principal: PrincipalId) -> Arc<Semaphore> {
        // No code panics between two states of the map.
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = own.of.get(&principal).and_then(Weak::upgrade) {
            return share;
        }
        if own.of.len() >= own.sweep_at {
            own.of.retain(|_, share| share.strong_count() > 0);
            own.sweep_at = FEW.max(own.of.len() * 2);
        }
        let share = Arc::new(Semaphore::new(self.share.min(Semaphore::MAX_PERMITS)));
        own.of.insert(principal, Arc::downgrade(&share));
        share
    }

    /// Takes `count` slots, and waits briefly for them. A principal waits for its own share first, so that it takes nothing from the
    /// others meanwhile.
    pub async fn take(&self, principal: Option<PrincipalId>, count: u32) -> Result<Place, Full> {
        let mut full = Full::Share;
        let taken = async {
            let own = match principal {
                Some(principal) => Some(self.own(principal).acquire_many_owned(count).await),
                None => None,
            };
            full = Full::All;
            (own.transpose(), self.all.clone().acquire_many_owned(count).await)
        };
        match tokio::time::timeout(PATIENCE, taken).await {
            Ok((Ok(own), Ok(all))) => Ok(Place { _all: all, _own: own }),
            // The semaphores are never closed.
            _ => Err(full),
        }
    }

    /// The most that one principal may hold.
    pub fn share(&self) -> u32 {
        u32::try_from(self.share).unwrap_or(u32::MAX)
    }

    /// The number of free slots.
    pub fn free(&self) -> usize {
        self.all.available_permits()
    }

    /// Takes a slot, or none if none is free now.
    pub fn take_now(&self, principal: Option<PrincipalId>) -> Result<Place, Full> {
        let own = principal.map(|principal| self.own(principal).try_acquire_owned()).transpose();
        let own = own.map_err(|_| Full::Share)?;
        let all = self.all.clone().try_acquire_owned().map_err(|_| Full::All)?;
        Ok(Place { _all: all, _own: own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANNA: Option<PrincipalId> = Some(PrincipalId(1));
    const BERT: Option<PrincipalId> = Some(PrincipalId(2));

    #[test]
    fn a_principal_leaves_slots_to_others_and_the_owner_may_have_all() {
        let slots = Slots::new(4, 2);
        let annas = [slots.take_now(ANNA), slots.take_now(ANNA)].map(|place| place.expect("her share"));
        assert_eq!(slots.take_now(ANNA).err(), Some(Full::Share));
        let others = [slots.take_now(BERT), slots.take_now(None)].map(|place| place.expect("a slot"));
        assert_eq!(slots.take_now(BERT).err(), Some(Full::All));
        drop(annas);
        assert!(slots.take_now(ANNA).is_ok(), "her slots came back");
        drop(others);
        let owners: Vec<_> = (0..4).map(|_| slots.take_now(None).expect("the owner has no share")).collect();
        assert_eq!(slots.take_now(None).err(), Some(Full::All));
        drop(owners);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_its_share_takes_nothing_from_others() {
        let slots = Arc::new(Slots::new(3, 2));
        let held = [slots.take(ANNA, 1).await, slots.take(ANNA, 1).await].map(|place| place.expect("her share"));
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let slots = slots.clone();
                tokio::spawn(async move { slots.take(ANNA, 1).await.err() })
            })
            .collect();
        tokio::task::yield_now().await;
        assert!(slots.take(BERT, 1).await.is_ok());
        for refused in waiting {
            assert_eq!(refused.await.expect("an answer"), Some(Full::Share));
        }
        drop(held);
        assert!(slots.take(ANNA, 2).await.is_ok());
    }

    #[test]
    fn who_holds_nothing_is_forgotten() {
        let slots = Slots::new(4, 2);
        for number in 0..10_000 {
            drop(slots.take_now(Some(PrincipalId(number))));
        }
        assert!(slots.own.lock().expect("no panic").of.len() <= FEW + 1);
    }
}
