//! One file per verb: what it asks, what it tells.

pub(super) mod bench;
pub(super) mod cancel;
pub(super) mod cluster;
pub(super) mod completions;
mod definition;
pub(super) mod dev;
pub(super) mod digest;
pub(super) mod events;
pub(super) mod import;
pub(super) mod kv;
pub(super) mod lock;
pub(super) mod logs;
pub(super) mod ls;
pub(super) mod nodes;
pub(super) mod run;
pub(super) mod server;
pub(super) mod show;
pub(super) mod snapshot;
pub(super) mod submit;
pub(super) mod validate;
pub(super) mod wait;
