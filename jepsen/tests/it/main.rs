//! The checker checked, and real clusters under faults.

mod cases;
mod leases;
mod locks;
mod recorded;
mod simulation;
mod snapshots;
mod support;
mod three_nodes;
