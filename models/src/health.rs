//! Whether a model's device still works, and how it recovers if it does not.

use crate::{
    ModelError,
    encoder::{Encoder, Here, Wanted},
    error::panic_message,
    ragged::Ragged,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

/// After this many panics of forward passes in a row the device counts as lost; a single one may be the fault of its
/// text.
const PANICS_IN_A_ROW: u32 = 3;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Loads the model's weights onto its device, as at the start.
pub(crate) type Open = Box<dyn Fn() -> Result<Arc<dyn Encoder>, ModelError> + Send + Sync>;

/// An encoder that is replaced when its device is lost.
pub(crate) struct Watched {
    open: Open,
    first_delay: Duration,
    state: Mutex<State>,
}

struct State {
    /// `None` while the device is lost: what was held there is freed before the device is opened again.
    encoder: Option<Arc<dyn Encoder>>,
    panics: u32,
    reason: String,
    next_try: Instant,
}

impl Watched {
    /// Opens a model as `open` does, and again in the same way whenever its device is lost. `open` also returns the hash of the weights, which it
    /// reads at `weights`; the hash must stay the same.
    pub fn load(
        open: impl Fn() -> Result<(Arc<dyn Encoder>, [u8; 32]), ModelError> + Send + Sync + 'static,
        weights: PathBuf,
    ) -> Result<(Arc<Self>, [u8; 32]), ModelError> {
        let (encoder, digest) = open()?;
        let reopen = move || match open()? {
            (encoder, again) if again == digest => Ok(encoder),
            // Otherwise what another model says would carry the name of this one.
            _ => Err(ModelError::Changed { path: weights.clone() }),
        };
        Ok((Self::new(encoder, Box::new(reopen), FIRST_DELAY), digest))
    }

    pub fn new(encoder: Arc<dyn Encoder>, open: Open, first_delay: Duration) -> Arc<Self> {
        let state = State { encoder: Some(encoder), panics: 0, reason: String::new(), next_try: Instant::now() };
        Arc::new(Self { open, first_delay, state: Mutex::new(state) })
    }

    /// Returns the encoder, or an error that says when a lost device will be tried again.
    pub fn encoder(&self) -> Result<Arc<dyn Encoder>, ModelError> {
        let state = self.lock();
        state.encoder.clone().ok_or_else(|| ModelError::DeviceLost {
            message: state.reason.clone(),
            retry_after: state.next_try.saturating_duration_since(Instant::now()).max(Duration::from_secs(1)),
        })
    }

    /// Records the end of a pass of `encoder`, with the message of its panic if it panicked.
    pub fn ended(self: &Arc<Self>, encoder: &Arc<dyn Encoder>, panic: Option<&str>) {
        let mut state = self.lock();
        // A pass of an abandoned encoder says nothing about the present one.
        if !state.encoder.as_ref().is_some_and(|current| Arc::ptr_eq(current, encoder)) {
            return;
        }
        let Some(message) = panic else {
            state.panics = 0;
            return;
        };
        state.panics += 1;
        if state.panics < PANICS_IN_A_ROW {
            return;
        }
        tracing::error!(panics = state.panics, message, "the model's device is lost; it will be opened again");
        self.lose(state, message);
    }

    /// Treats the device as lost without a panic.
    pub fn give_up(self: &Arc<Self>, reason: &str) {
        let state = self.lock();
        if state.encoder.is_some() {
            self.lose(state, reason);
        }
    }

    /// Frees what is held on the device, and starts to open it again.
    fn lose(self: &Arc<Self>, mut state: MutexGuard<'_, State>, reason: &str) {
        state.encoder = None;
        state.reason = reason.to_owned();
        state.next_try = Instant::now() + self.first_delay;
        drop(state);
        let (device, delay) = (Arc::downgrade(self), self.first_delay);
        let spawned = thread::Builder::new().name("model-reopen".to_owned()).spawn(move || reopen(&device, delay));
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread could be started to open the model's device again: restart the service");
        }
    }

    /// Opens the device and runs one pass on it.
    fn try_again(&self) -> Result<(), String> {
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let encoder = (self.open)().map_err(|error| error.to_string())?;
            encoder.forward(&Ragged::from_sequences([&[0u32][..]]), Wanted::Rows, &Here);
            Ok(encoder)
        }));
        let encoder = opened.unwrap_or_else(|panic| Err(panic_message(&*panic)))?;
        let mut state = self.lock();
        state.panics = 0;
        state.encoder = Some(encoder);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock leaves the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tries until the device works again or nobody uses the model any more.
fn reopen(device: &Weak<Watched>, mut delay: Duration) {
    loop {
        // If it wakes too early it tries too early, which does no harm.
        thread::park_timeout(delay);
        let Some(device) = device.upgrade() else { return };
        match device.try_again() {
            Ok(()) => {
                tracing::info!("the model's device works again");
                return;
            }
            Err(reason) => {
                delay = (delay * 2).min(LONGEST_DELAY);
                tracing::error!(reason, seconds = delay.as_secs_f64(), "the model's device cannot be opened");
                let mut state = device.lock();
                state.reason = reason;
                state.next_try = Instant::now() + delay;
            }
        }
    }
}
