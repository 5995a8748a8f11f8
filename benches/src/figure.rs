//! What a bench prints: one line of JSON per figure.
use serde::Serialize;
use std::{borrow::Cow, io::Write as _};

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// One measured value.
#[derive(Debug, Serialize)]
pub struct Figure {
    pub name: String,
    /// How many of what the name says were measured.
    pub n: usize,
    pub unit: &'static str,
    pub ours: f64,
    pub peer: Option<Peer>,
    /// How many times better ours is than the peer's.
    pub ratio: Option<f64>,
    /// What ours should be; left out where nothing is asked of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// A bound for a value, and whether the value keeps to it.
#[derive(Debug, Serialize)]
pub struct Goal {
    pub is: &'static str,
    pub than: f64,
    pub is_met: bool,
}

/// The same work, done by another program in the same run.
#[derive(Debug, Serialize)]
pub struct Peer {
    pub name: &'static str,
    pub version: Cow<'static, str>,
    pub value: f64,
}

impl Figure {
    pub fn alone(name: &str, n: usize, unit: &'static str, ours: f64) -> Self {
        Self { name: name.to_owned(), n, unit, ours, peer: None, ratio: None, goal: None }
    }

    pub fn beside(name: &str, n: usize, unit: &'static str, ours: f64, peer: Peer) -> Self {
        // For a rate more is better; for a time or a size, less.
        let ratio = if unit.ends_with("/s") { ours / peer.value } else { peer.value / ours };
        Self { name: name.to_owned(), n, unit, ours, ratio: Some(ratio), peer: Some(peer), goal: None }
    }

    /// Ours should be over this.
    pub fn above(self, than: f64) -> Self {
        let goal = Goal { is: "more", than, is_met: self.ours > than };
        Self { goal: Some(goal), ..self }
    }

    /// Ours should be under this.
    pub fn below(self, than: f64) -> Self {
        let goal = Goal { is: "less", than, is_met: self.ours < than };
        Self { goal: Some(goal), ..self }
    }

    /// Ours should be this or over it.
    pub fn at_least(self, than: f64) -> Self {
        let goal = Goal { is: "no less", than, is_met: self.ours >= than };
        Self { goal: Some(goal), ..self }
    }

    /// Writes the line at once, so that an interrupted run keeps what it measured.
    pub fn print(&self) -> Result<(), BoxError> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, self)?;
        out.write_all(b"\n")?;
        Ok(out.flush()?)
    }
}

/// The median of the values; NaN if there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value that 95% of the values do not exceed; NaN if there are none.
pub fn p95(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() * 95 / 100).copied().unwrap_or(f64::NAN)
}
