//! Model architectures of Frit.
