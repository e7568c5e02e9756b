//! Identifiers as types of their own, so that a run is never taken for a claw. Rows and commands hold the bare numbers.

use core::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<$inner> for $name {
            fn from(value: $inner) -> Self {
                $name(value)
            }
        }
    )*};
}

ids! {
    /// A run: 1, 2, 3, ... in the order of their submits.
    RunId(u64);
    /// The position of a task in its workflow, from 0.
    TaskIndex(u32);
    /// A claw: the id of the node it belongs to.
    ClawId(u64);
    /// A node: the log index of the entry that added it.
    NodeId(u64);
    /// A fencing token: the log index of the entry that granted the attempt.
    Fence(u64);
    /// The number of an attempt of a task, from 1.
    AttemptNumber(u32);
    /// A workflow by its number, whatever its name.
    WorkflowUid(u64);
    /// A version of a workflow, from 1.
    Version(u64);
}
