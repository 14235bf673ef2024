//! The commands, a file each.

pub mod bench;
pub mod chat;
pub mod completions;
pub mod devices;
pub mod embed;
pub mod generate;
pub mod inspect;
pub mod man;
pub mod pull;
