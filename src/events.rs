//! What happened, on its way to those who follow it: numbered by one process of the fleet, and announced in each that has readers.
mod news;
pub mod sequencer;

pub use news::News;
