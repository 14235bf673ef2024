//! Metal: so far only what its driver decides, as plain data; nothing carries it out yet, so it is compiled for tests alone.

mod plan;
