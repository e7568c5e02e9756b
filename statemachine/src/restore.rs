//! What a restore from a snapshot ends beside claws and nodes. Tables that come later add their part here.

use crate::halt::Step;
use crate::schedule;
use crate::work::Work;

/// Brings to rest what must not go on by itself in a restored cluster. Called once, in its first entry.
pub(crate) fn quiesce(work: &mut Work<'_>) -> Step<()> {
    schedule::pause_all(work, "restored from a snapshot; the cluster it is of may still fire")
}
