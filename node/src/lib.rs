//! The clawhive process as a library.
#![deny(unsafe_code)]

pub mod claw;
