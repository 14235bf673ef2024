//! The frit command.
fn main() {}
