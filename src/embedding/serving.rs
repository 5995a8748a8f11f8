//! Which model a process works with, where it may have two: the one of its settings, or the coming one, to which all vectors were moved.
use std::sync::{
    PoisonError, RwLock,
    atomic::{AtomicBool, Ordering},
};

/// The model whose vectors serve, as the database says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// Its name and hash.
    pub model: String,
    /// The models whose vectors others took the place of, until they serve again.
    pub replaced: Vec<String>,
    /// The model to which vectors are being moved.
    pub coming: Option<String>,
    /// Vectors are being moved from one model to another.
    pub moves: bool,
}

impl Served {
    /// Whether nobody may work with this model: what is written with it is found by nobody, and takes away what is found. Between two moves the settings
    /// may name any model that was never replaced.
    pub fn refuses(&self, model: &str) -> bool {
        self.model != model && (self.moves || self.replaced.iter().any(|replaced| replaced == model))
    }
}

/// What a process knows of it. One look a second keeps it young; meanwhile the vectors of both models are there.
#[derive(Debug, Default)]
pub struct Serving {
    looked: AtomicBool,
    served: RwLock<Option<Served>>,
    mixed: RwLock<Option<String>>,
    followed: AtomicBool,
}

impl Serving {
    /// Whether anybody has looked yet.
    pub fn is_known(&self) -> bool {
        self.looked.load(Ordering::Acquire)
    }

    /// The model that serves; `None` if no move has ever begun.
    pub fn served(&self) -> Option<Served> {
        self.served.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// This process's model, if there are vectors of others that nobody moves: what has only such is found by no query.
    pub fn mixed(&self) -> Option<String> {
        self.mixed.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set_served(&self, served: Option<Served>) {
        *self.served.write().unwrap_or_else(PoisonError::into_inner) = served;
        self.looked.store(true, Ordering::Release);
    }

    pub fn set_mixed(&self, mixed: Option<String>) {
        *self.mixed.write().unwrap_or_else(PoisonError::into_inner) = mixed;
    }

    /// Whether this is the first call, after which somebody looks again and again.
    pub fn is_to_be_followed(&self) -> bool {
        !self.followed.swap(true, Ordering::Relaxed)
    }
}
