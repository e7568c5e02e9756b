//! The process executor.
mod spawn;
