//! The whole worker against a queue in memory.
mod chaining;
mod ending;
mod fake;
mod faults;
mod running;
