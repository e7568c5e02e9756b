//! A node of clawhive as a library: configuration, peers, API, leader loops, claw. The binary is a thin shell over it.
#![deny(unsafe_code)]

mod api;
pub mod backup;
pub mod calendar;
pub mod claw;
pub mod config;
mod context;
pub mod definition;
mod digests;
pub mod env;
pub mod identity;
pub mod import;
mod leader;
pub mod node;
pub mod peer;
mod rebuild;
pub mod storage;
pub mod template;
mod transfer;

pub use rebuild::RebuildError;

pub use node::{Builder, Node, StartError};
