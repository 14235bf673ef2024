//! The ops of Frit, one file each.
