//! The client against servers that live in the test and fail as told.

mod calls;
mod fake;
mod locks;
mod streams;
