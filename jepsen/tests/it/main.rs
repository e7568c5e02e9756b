//! The checker checked, and real clusters under faults.

mod cases;
mod disk;
mod leases;
mod locks;
mod membership;
mod operations;
mod recorded;
mod schedules;
mod sigterm;
mod simulation;
mod snapshots;
mod support;
mod three_nodes;
mod upgrade;
