//! The checker checked, and real clusters under faults.

mod simulation;
