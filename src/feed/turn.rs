//! What the readers of events have in common: one process of the fleet is the one, for as long as it has the broker and the database.
use super::broker::BrokerError;
use std::time::Duration;

/// The time between two looks while there is nothing to tell, and between two tries to become the one that tells.
pub const PAUSE: Duration = Duration::from_millis(500);

/// What a reader has lost.
pub enum Lost {
    Broker(BrokerError),
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Lost {
    fn from(error: sqlx::Error) -> Lost {
        Lost::Database(error)
    }
}
