//! The clawhive process as a library: what the binary and an embedding program share.
#![forbid(unsafe_code)]

pub mod definition;
pub mod import;
pub mod template;
