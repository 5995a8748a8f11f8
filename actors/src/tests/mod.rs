//! The whole worker against a queue in memory.
mod ending;
mod fake;
mod faults;
mod running;
