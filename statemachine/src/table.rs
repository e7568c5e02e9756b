//! Every table, with its fixed number. A number is never reused: snapshots and the store on disk hold them.

/// A table of the replicated state. The number is the first byte of a row's place on disk and in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// One row: counters and the last time. Key: empty.
    Meta = 1,
    /// (namespace, name) -> WorkflowRow.
    Workflows = 2,
    /// (workflow uid, version) -> VersionRow.
    Versions = 3,
    /// (workflow uid, version, task) -> SpecRow.
    Specs = 4,
    /// run -> RunRow.
    Runs = 5,
    /// (run, task) -> TaskRow.
    Tasks = 6,
    /// (run, task, attempt) -> AttemptRow.
    Attempts = 7,
    /// (9 - priority, ready sequence) -> (run, task): what may be dispatched now, best first.
    Ready = 8,
    /// (run, ready sequence) -> task: ready, but its run is at max_parallel.
    Held = 9,
    /// (claw, fence, run, task) -> AssignmentRow.
    Assignments = 10,
    /// (due, kind, run, task) -> TimerRow.
    Timers = 11,
    /// sequence -> BacklogRow.
    Backlog = 12,
    /// (run, task) -> OutputRow.
    Outputs = 13,
    /// claw -> ClawRow.
    Claws = 14,
    /// node -> NodeRow.
    Nodes = 15,
    /// join id -> node.
    Joins = 16,
    /// request id -> RequestRow.
    Requests = 17,
    /// (expires, request id) -> ().
    RequestExpiry = 18,
    /// (namespace, key) -> IdempotencyRow.
    Idempotency = 19,
    /// (expires, namespace, key) -> ().
    IdempotencyExpiry = 20,
    /// log index -> EventBatch.
    Events = 21,
    /// (run, log index) -> ().
    RunEvents = 22,
    /// (ended, run) -> (): finished runs, oldest first.
    Finished = 23,
    /// run -> (): runs that have not ended.
    Active = 24,
    /// (namespace, key) -> KeyRow.
    Keys = 25,
    /// One row: what holds for the cluster as a whole. Key: empty.
    Cluster = 28,
    /// (namespace, lock) -> LockRow: locks that are held.
    Locks = 30,
    /// (namespace, lock, place) -> LockWaiterRow: who waits for a lock, first come first.
    LockWaiters = 31,
    /// (log index, namespace, lock, place) -> (): leases of holders (place 0) and waiters by their last renewal.
    LockLeases = 32,
    /// (namespace, key) -> KeyFenceRow.
    KeyFences = 33,
}

impl Table {
    /// Every table, in the order of numbers.
    pub const ALL: [Table; 30] = [
        Table::Meta,
        Table::Workflows,
        Table::Versions,
        Table::Specs,
        Table::Runs,
        Table::Tasks,
        Table::Attempts,
        Table::Ready,
        Table::Held,
        Table::Assignments,
        Table::Timers,
        Table::Backlog,
        Table::Outputs,
        Table::Claws,
        Table::Nodes,
        Table::Joins,
        Table::Requests,
        Table::RequestExpiry,
        Table::Idempotency,
        Table::IdempotencyExpiry,
        Table::Events,
        Table::RunEvents,
        Table::Finished,
        Table::Active,
        Table::Keys,
        Table::Cluster,
        Table::Locks,
        Table::LockWaiters,
        Table::LockLeases,
        Table::KeyFences,
    ];

    /// Its fixed number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The table of a number read from a disk or a snapshot.
    pub fn from_number(number: u8) -> Option<Table> {
        Table::ALL.into_iter().find(|table| table.number() == number)
    }

    /// True for tables whose keys hold a sequence and are stored at most once in all time. A store may forget a
    /// deleted row of theirs at once instead of remembering that it is gone, when the row never reached the disk.
    pub const fn keys_are_unique(self) -> bool {
        matches!(self, Table::Ready | Table::Held | Table::Backlog | Table::Events | Table::RunEvents)
    }
}
