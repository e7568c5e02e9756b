//! Beats of claws at the leader: who is alive, and one entry of renewals for all that arrive in a tick.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clawhive_proto::command::Kind;
use clawhive_proto::{
    ClawBeat, ClawBeatReply, ClawState, Command, Confirmed, NotLeader, PeerError, RenewLeases, Renewal,
    Unknown, claw_beat_reply,
};
use clawhive_statemachine::ids::ClawId;
use clawhive_statemachine::{ReadStore, read};
use tokio::sync::{Notify, oneshot, watch};

use super::{Leadership, Over, over};
use crate::context::Context;

/// Beats that arrive within this time travel together.
const TICK: Duration = Duration::from_millis(50);

/// A claw that was not heard of for longer gets nothing new, well before its lease ends. Beats come each second.
const FRESH: Duration = Duration::from_millis(2_500);

/// How long a renewal may take to be committed.
const PATIENCE: Duration = Duration::from_secs(2);

/// Beats that reached this node while it leads. In memory only: a new leader hears of every claw within a moment.
#[derive(Debug)]
pub(crate) struct Beats {
    state: Mutex<State>,
    arrived: Notify,
    newcomers: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    heard: BTreeMap<u64, Heard>,
    /// Whose clock was found to be off, and when that was last said.
    skewed: BTreeMap<u64, Duration>,
    waiting: Vec<(ClawBeat, oneshot::Sender<ClawBeatReply>)>,
}

#[derive(Debug)]
struct Heard {
    incarnation: Vec<u8>,
    draining: bool,
    at: Duration,
}

/// Clocks that are further apart are worth a warning: times in events and schedules follow whoever leads.
const SKEW_MS: u64 = 1_000;

/// A clock that stays off is mentioned again after this time.
const SKEW_AGAIN: Duration = Duration::from_secs(600);

impl State {
    /// Compares the wall clock in a beat with the leader's clock. The time that the beat was on its way does not matter here.
    fn compare(&mut self, beat: &ClawBeat, clock_ms: u64, now: Duration) {
        if beat.wall_ms == 0 || beat.wall_ms.abs_diff(clock_ms) < SKEW_MS {
            self.skewed.remove(&beat.claw);
            return;
        }
        if self.skewed.get(&beat.claw).is_some_and(|said| now.saturating_sub(*said) < SKEW_AGAIN) {
            return;
        }
        self.skewed.insert(beat.claw, now);
        let (node, off_ms) = (beat.claw, beat.wall_ms.abs_diff(clock_ms));
        let direction = if beat.wall_ms > clock_ms { "ahead of" } else { "behind" };
        tracing::warn!(node, off_ms, "the clock of node {node} is {off_ms} ms {direction} the leader's");
    }
}

impl Default for Beats {
    fn default() -> Beats {
        Beats { state: Mutex::default(), arrived: Notify::new(), newcomers: watch::Sender::new(0) }
    }
}

impl Beats {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another term: nothing heard before counts, and who waits is to ask the new leader.
    pub(super) fn forget(&self) {
        *self.lock() = State::default();
    }

    /// Claws that were heard of lately under the incarnation that the state knows, and that don't say they stop.
    pub(super) fn live(&self, view: &dyn ReadStore, now: Duration) -> BTreeSet<u64> {
        let state = self.lock();
        let fresh = state.heard.iter().filter(|(_, heard)| now.saturating_sub(heard.at) <= FRESH);
        let known = |claw: u64, heard: &Heard| {
            !heard.draining
                && read::claw(view, ClawId(claw)).is_some_and(|row| row.incarnation == heard.incarnation)
        };
        fresh.filter(|(claw, heard)| known(**claw, heard)).map(|(claw, _)| *claw).collect()
    }

    /// A place to wait from with [`Beats::newcomer`].
    pub(super) fn arrivals(&self) -> u64 {
        *self.newcomers.borrow()
    }

    /// Returns when a claw was heard of that was not live before.
    pub(super) async fn newcomer(&self, seen: u64) {
        let mut newcomers = self.newcomers.subscribe();
        // The sender lives as long as self.
        let _ = newcomers.wait_for(|count| *count != seen).await;
    }

    /// Answers a beat, once the renewal it asks for is committed.
    pub(crate) async fn beat(&self, ctx: &Context, beat: ClawBeat) -> ClawBeatReply {
        let status = ctx.status();
        if !status.is_leader {
            return not_leader(status.leader);
        }
        let (answer, answered) = oneshot::channel();
        let now = ctx.clock.monotonic();
        let is_new = {
            let mut state = self.lock();
            state.compare(&beat, ctx.clock.now_ms(), now);
            let heard = Heard { incarnation: beat.incarnation.clone(), draining: beat.draining, at: now };
            let before = state.heard.insert(beat.claw, heard);
            state.waiting.push((beat.clone(), answer));
            !before
                .is_some_and(|old| old.incarnation == beat.incarnation && now.saturating_sub(old.at) <= FRESH)
        };
        if is_new {
            self.newcomers.send_modify(|count| *count += 1);
        }
        self.arrived.notify_one();
        answered
            .await
            .unwrap_or_else(|_| not_leader(ctx.status().leader.filter(|leader| *leader != ctx.me.node)))
    }
}

fn not_leader(leader: Option<u64>) -> ClawBeatReply {
    let not_leader = NotLeader { leader: leader.unwrap_or(0) };
    ClawBeatReply { result: Some(claw_beat_reply::Result::NotLeader(not_leader)) }
}

/// The loop: collects the beats of a tick, renews, answers.
pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    loop {
        ctx.beats.arrived.notified().await;
        tokio::time::sleep(TICK).await;
        let waiting = std::mem::take(&mut ctx.beats.lock().waiting);
        if waiting.is_empty() {
            continue;
        }
        let beats: Vec<ClawBeat> = waiting.iter().map(|(beat, _)| beat.clone()).collect();
        let answers = match renew(ctx, &beats).await {
            Ok(answers) => answers,
            Err(Err(over)) => return over,
            Err(Ok(message)) => {
                let error = PeerError { message, may_have_been_applied: true };
                vec![claw_beat_reply::Result::Error(error); beats.len()]
            }
        };
        for ((_, waits), result) in waiting.into_iter().zip(answers) {
            // A claw that no longer waits will beat again.
            let _ = waits.send(ClawBeatReply { result: Some(result) });
        }
    }
}

/// An answer for each beat, in order. Inner errors leave it open whether a lease was renewed.
async fn renew(
    ctx: &Context,
    beats: &[ClawBeat],
) -> Result<Vec<claw_beat_reply::Result>, Result<String, Over>> {
    // Linearizable: a leader that was replaced without knowing must not confirm that nothing is leased.
    let view = ctx.replica.linearizable_view(PATIENCE).await.map_err(|error| Ok(error.to_string()))?;
    let leased = |beat: &ClawBeat| standing(&view, beat) == Standing::Leased;
    let renewals: Vec<Renewal> = beats
        .iter()
        .filter(|beat| leased(beat))
        .map(|beat| (beat.claw, beat.incarnation.clone()))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|(claw, incarnation)| Renewal { claw, incarnation })
        .collect();
    if renewals.is_empty() {
        return Ok(beats.iter().map(|beat| answer(standing(&view, beat))).collect());
    }
    let command = Command { kind: Some(Kind::RenewLeases(RenewLeases { renewals })) };
    ctx.propose_leading(vec![command]).await.map_err(|error| over(error).map(|error| error.to_string()))?;
    // An expiry may have come in between: then the renewal renewed nothing.
    let view = ctx.replica.view();
    Ok(beats.iter().map(|beat| answer(standing(&view, beat))).collect())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unknown,
    Free,
    Leased,
}

fn standing(view: &dyn ReadStore, beat: &ClawBeat) -> Standing {
    match read::claw(view, ClawId(beat.claw)) {
        Some(row) if row.incarnation == beat.incarnation && row.state() != ClawState::Down => {
            if row.used > 0 { Standing::Leased } else { Standing::Free }
        }
        _ => Standing::Unknown,
    }
}

fn answer(standing: Standing) -> claw_beat_reply::Result {
    match standing {
        Standing::Unknown => claw_beat_reply::Result::Unknown(Unknown {}),
        Standing::Free | Standing::Leased => claw_beat_reply::Result::Confirmed(Confirmed {}),
    }
}
