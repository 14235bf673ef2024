//! Model file formats and tokenizers of Frit.
