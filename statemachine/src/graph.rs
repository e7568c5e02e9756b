//! The graph rules: when a task is ready, what its end means for the others, how a run is stopped, and how work that
//! would not fit into one entry is cut. Every file here changes rows only through [`crate::work::Work`].

pub(crate) mod admission;
pub(crate) mod attempt;
pub(crate) mod backlog;
pub(crate) mod check;
pub(crate) mod end;
pub(crate) mod stop;
