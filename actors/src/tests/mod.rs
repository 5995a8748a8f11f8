//! The whole worker against a queue in memory.
mod alone;
mod chaining;
mod ending;
mod fake;
mod faults;
mod running;
