//! The Rust client of clawhive: submit runs, follow them, read their logs and events, look at the cluster; keys and locks.
//!
//! A [`Client`] knows one or more peers. Any peer answers any call (it forwards to the leader by itself), so the client
//! stays with a peer that works and goes to the next one when it does not. Each write carries a request id that is the
//! same through all retries, so a retried write happens once. Each call has a deadline; streams resume where they broke
//! off, on another peer if need be, without a gap and without a repeat.
//!
//! This crate must not know the state machine or Raft: it speaks the protocol of `clawhive-proto` and nothing else.
//!
//! ```no_run
//! use clawhive_client::{Client, Submit};
//! use clawhive_client::proto::RunState;
//!
//! # async fn example() -> Result<(), clawhive_client::Error> {
//! let client = Client::builder().servers(["10.0.0.1:7400", "10.0.0.2:7400"]).connect_lazy()?;
//! let text = "name: hello\ntasks: {greet: {run: echo hello}}";
//! let submitted = client.submit(Submit::definition(text)).await?;
//! let run = client.wait(submitted.run).await?;
//! assert_eq!(run.run.map(|r| r.state()), Some(RunState::Succeeded));
//! # Ok(())
//! # }
//! ```
//!
//! A failed call says what the caller can do about it, and whether a write may have happened all the same:
//!
//! ```no_run
//! # use clawhive_client::{Client, Error, Submit};
//! # async fn example(client: Client) {
//! match client.submit(Submit::workflow("nightly-etl").param("date", "2026-03-01")).await {
//!     Ok(submitted) => println!("run {}", submitted.run),
//!     Err(Error::Invalid { diagnostics, .. }) => {
//!         for d in diagnostics {
//!             eprintln!("{}:{} {}", d.line, d.column, d.message);
//!         }
//!     }
//!     Err(error) if error.may_have_been_applied() => eprintln!("look before you submit again: {error}"),
//!     Err(error) => eprintln!("not submitted: {error}"),
//! }
//! # }
//! ```
#![forbid(unsafe_code)]

mod backup;
mod builder;
mod call;
mod client;
mod endpoints;
mod error;
mod follow;
mod keys;
mod kv;
mod lock;
mod logs;
mod resume;
mod submit;

pub use backup::SnapshotStream;
pub use builder::{Builder, DEFAULT_PATIENCE, DEFAULT_TIMEOUT};
/// The messages of the protocol, as the calls take and give them.
pub use clawhive_proto as proto;
pub use client::Client;
pub use error::{Error, is_no_server};
pub use follow::{EventStream, RunStream};
pub use keys::{KeyAnswers, Put};
pub use kv::{Kv, PutOptions, Txn, TxnAnswer};
pub use lock::{Holder, Lock, LockGuard, Lost};
pub use logs::LogStream;
pub use submit::Submit;

/// Is this the state of a run that has ended?
pub fn has_ended(state: proto::RunState) -> bool {
    matches!(state, proto::RunState::Succeeded | proto::RunState::Failed | proto::RunState::Cancelled)
}

/// A new request id: a UUID v7, as 16 bytes.
fn request_id() -> Vec<u8> {
    uuid::Uuid::now_v7().into_bytes().to_vec()
}
