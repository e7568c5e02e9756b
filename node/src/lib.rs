//! A node of clawhive as a library: configuration, peers, API, leader loops, claw. The binary is a thin shell over it.
#![deny(unsafe_code)]

pub mod claw;
pub mod config;
pub mod env;
pub mod identity;
pub mod peer;
