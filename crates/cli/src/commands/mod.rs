//! The commands, a file each.

pub mod bench;
pub mod embed;
pub mod generate;
pub mod inspect;
pub mod pull;
