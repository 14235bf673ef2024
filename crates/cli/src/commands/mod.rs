//! The commands, a file each.

pub mod bench;
pub mod generate;
pub mod inspect;
pub mod pull;
