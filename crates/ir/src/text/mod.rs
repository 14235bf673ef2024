//! The text form of graphs and schedules.
//!
//! A graph prints one node a line, with stable names and types spelled out, and reads back as an equal graph:
//!
//! ```text
//! graph "mlp"
//! symbol T 1..=512
//! bound 2*T <= 600
//! guard T == 4 "reshape: element count"
//! input %x: f32[T, 64]
//! param %w: Q8_0[64, 64]
//! state %cache: f16[1, 2, 128, 32]
//! const %half: f32[1] = [0.5]
//! %y: f32[T, 64] = expr(%x, %half) {expr={(f32, f32) 2=mul(0,1) -> 2:f32}}
//! output "y" = %y
//! update %cache = %cache.1
//! ```
//!
//! Names that hold anything but letters, digits, `_`, `.`, `/` and `-` are quoted: `%"a b"`. A `_` among the operands
//! stands for an optional one left out. `#` starts a comment line. Schedules only print. Reading never panics; nesting and
//! the size of dimension expressions are limited.

mod cursor;
mod dim;
mod parse;
mod print;
mod schedule;

pub use dim::parse_dim;
pub use parse::{parse, parse_expr};
pub use print::print;
pub use schedule::{print_schedule, print_step};

/// Why a text could not be read, and where (both counted from 1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line.
    pub line: usize,
    /// Column, in characters.
    pub column: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

/// Whether `c` may stand in an unquoted name.
fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '/' | '-')
}

#[cfg(test)]
mod tests;
