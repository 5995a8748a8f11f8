//! How documents are read: rules by usetype, and blocks made of texts. Pure; the operations of `handlers/view.rs` bring the documents.
mod blocks;
mod html;
pub mod markup;
mod rules;

pub use blocks::{Maker, Node, fields, finish};
pub use rules::{Rules, complete, seed};
