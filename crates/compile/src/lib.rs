//! The compiler of Frit: graph to schedule.
