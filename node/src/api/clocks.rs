//! How far the clocks of nodes are apart, from one round trip to each. For people only: nothing is decided by it.

use std::collections::BTreeMap;

use clawhive_proto::PeerStatus;

/// The clocks of one node, as the node that asked sees them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// Its wall clock, ahead of the asker's.
    wall_ms: i64,
    /// The clock that it stamps entries with, ahead of the asker's wall clock.
    clock_ms: i64,
    /// Both may be off by so much: half of the round trip, and rounding.
    within_ms: i64,
}

impl Clocks {
    /// From an answer that was asked for and came at these times of the asker's wall clock.
    pub(super) fn new(answer: &PeerStatus, sent_ms: u64, came_ms: u64) -> Clocks {
        // One from before clocks were told is taken to be right.
        if answer.wall_ms == 0 {
            return Clocks { wall_ms: 0, clock_ms: 0, within_ms: i64::MAX / 4 };
        }
        let (sent, came) = (signed(sent_ms), signed(came_ms));
        let middle = sent + (came - sent) / 2;
        Clocks {
            wall_ms: signed(answer.wall_ms) - middle,
            clock_ms: signed(answer.clock_ms) - middle,
            within_ms: (came - sent).abs() / 2 + 2,
        }
    }
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 4)
}

/// How far the wall clock of a node is ahead of the clock of the leader (without one, of the asker's wall clock); 0 when that
/// cannot be told.
pub(super) fn skew_ms(clocks: &BTreeMap<u64, Clocks>, leader: Option<u64>, node: u64) -> i64 {
    let here = Clocks { wall_ms: 0, clock_ms: 0, within_ms: 0 };
    let leader = leader.and_then(|leader| clocks.get(&leader)).copied().unwrap_or(here);
    let Some(of) = clocks.get(&node) else { return 0 };
    let skew = of.wall_ms - leader.clock_ms;
    if skew.abs() > of.within_ms.saturating_add(leader.within_ms) { skew } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(wall_ms: u64, clock_ms: u64) -> PeerStatus {
        PeerStatus { wall_ms, clock_ms, ..PeerStatus::default() }
    }

    #[test]
    fn differences_are_to_the_clock_of_the_leader() {
        let now = 1_000_000;
        let clocks = BTreeMap::from([
            (1, Clocks::new(&status(now, now), now, now)),
            // The leader: its wall clock was stepped by an hour, the clock that it leads with was not.
            (2, Clocks::new(&status(now + 3_600_000, now + 5), now - 10, now + 10)),
            (3, Clocks::new(&status(now - 60_000, now - 60_000), now - 1, now + 1)),
            (4, Clocks::new(&status(now + 9, now + 9), now - 4, now + 4)),
            (5, Clocks::new(&PeerStatus::default(), now, now)),
        ]);
        assert_eq!(skew_ms(&clocks, Some(2), 2), 3_599_995);
        assert_eq!(skew_ms(&clocks, Some(2), 3), -60_005);
        assert_eq!(skew_ms(&clocks, Some(2), 4), 0, "within the round trips");
        assert_eq!(skew_ms(&clocks, Some(2), 5), 0, "not told");
        assert_eq!(skew_ms(&clocks, Some(2), 6), 0, "not reached");
        assert_eq!(skew_ms(&clocks, None, 3), -60_000);
        assert_eq!(skew_ms(&clocks, None, 1), 0);
    }
}
