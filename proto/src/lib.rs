//! The vocabulary of clawhive: workflow definition, commands, rows, outcomes and RPC services, as protobuf messages with
//! fixed numbers. No behaviour here. The `.proto` files in `proto/clawhive/v1` are the documentation of each field.
//!
//! Without the `rpc` feature this crate is `no_std`, so that the state machine can use it.
#![cfg_attr(not(feature = "rpc"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub use prost;
pub use prost::bytes;

/// The messages of `clawhive.v1`, and under `rpc` its services.
#[allow(missing_docs, clippy::all, clippy::pedantic)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/clawhive.v1.rs"));
}

pub use generated::*;

/// The largest message that any port takes, in bytes.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;
