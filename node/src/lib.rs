//! A node of clawhive as a library: configuration, peers, API, leader loops, claw. The binary is a thin shell over it.
#![deny(unsafe_code)]

mod api;
pub mod calendar;
pub mod claw;
pub mod config;
mod context;
pub mod definition;
pub mod env;
pub mod identity;
pub mod import;
mod leader;
pub mod node;
pub mod peer;
pub mod template;

pub use node::{Builder, Node, StartError};
