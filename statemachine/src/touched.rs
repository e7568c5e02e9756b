//! What an entry touched: the payload-free wake-up of the feed.

/// A set of areas of the state. A reader that is woken looks at the state again; the bits only say where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched(pub u32);

impl Touched {
    /// Nothing.
    pub const NONE: Touched = Touched(0);
    /// Everything: what a fresh reader starts with, so that start-up, recovery and the happy path are one path.
    pub const ALL: Touched = Touched(u32::MAX);
    /// The ready index gained rows, or a claw gained a free slot.
    pub const READY: Touched = Touched(1);
    /// Assignments were made, ended or told to stop.
    pub const ASSIGNMENTS: Touched = Touched(1 << 1);
    /// Timers were added.
    pub const TIMERS: Touched = Touched(1 << 2);
    /// The backlog gained rows.
    pub const BACKLOG: Touched = Touched(1 << 3);
    /// Claws registered, renewed or expired.
    pub const CLAWS: Touched = Touched(1 << 4);
    /// Nodes were added or changed.
    pub const NODES: Touched = Touched(1 << 5);
    /// Runs or tasks changed.
    pub const RUNS: Touched = Touched(1 << 6);
    /// Workflows changed.
    pub const WORKFLOWS: Touched = Touched(1 << 7);
    /// Something with an expiry was stored.
    pub const EXPIRY: Touched = Touched(1 << 8);

    /// Locks were acquired, renewed, queued for, released or expired.
    pub const LOCKS: Touched = Touched(1 << 12);

    /// Events were stored.
    pub const EVENTS: Touched = Touched(1 << 13);

    /// The union.
    #[must_use]
    pub const fn with(self, other: Touched) -> Touched {
        Touched(self.0 | other.0)
    }

    /// Adds the bits of `other`.
    pub fn add(&mut self, other: Touched) {
        self.0 |= other.0;
    }

    /// True when any bit is in both.
    pub const fn any(self, of: Touched) -> bool {
        self.0 & of.0 != 0
    }
}
