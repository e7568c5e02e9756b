//! The proof of clawhive: a deterministic simulation of scheduling by seed, and runs of real processes under faults.
//!
//! Owns: the simulated world, the laws it is judged by, the harness that starts and kills real nodes, the workloads and
//! their checks. Must not: be used by any other crate, or know the system's randomness in a simulation.

pub mod blackbox;
pub mod burn;
pub mod catch_up;
pub mod claw_loss;
pub mod cluster;
pub mod failover;
pub mod proxy;
pub mod rng;
pub mod sim;
pub mod verdict;
