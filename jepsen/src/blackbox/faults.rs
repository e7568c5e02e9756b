//! Kills by seed. Owns when which node is killed and started again; what the kills mean for the work is judged
//! elsewhere.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::cluster::Cluster;
use crate::rng::Rng;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Faults {
    /// Nothing.
    None,
    /// Whoever leads is killed, every five seconds.
    KillLeader,
    /// Any node is killed, every five seconds.
    KillAny,
    /// All nodes are killed at once, every ten seconds.
    KillAll,
}

/// What took effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Processes killed.
    pub kills: usize,
    /// Of them, those that led.
    pub leaders: usize,
    /// Another node led afterwards, in a later term.
    pub changes: usize,
}

impl Effects {
    /// Did what was asked for take effect?
    pub fn enough(&self, asked: Faults) -> bool {
        match asked {
            Faults::None => true,
            Faults::KillLeader => self.leaders > 0,
            Faults::KillAny | Faults::KillAll => self.kills > 0,
        }
    }
}

/// Injects faults until the time is over, then starts again all that is down.
pub async fn inject(cluster: &mut Cluster, faults: Faults, seed: u64, until: Instant) -> Result<Effects> {
    let mut rng = Rng::of(seed, &[11]);
    let mut effects = Effects::default();
    let pause = match faults {
        Faults::KillAll => Duration::from_secs(10),
        _ => Duration::from_secs(5),
    };
    let mut next = Instant::now() + pause / 2;
    while faults != Faults::None && next < until {
        tokio::time::sleep_until(next.into()).await;
        next += pause;
        let leader = cluster.leader().await;
        let victims: Vec<usize> = match faults {
            Faults::None => Vec::new(),
            Faults::KillLeader => leader.into_iter().collect(),
            Faults::KillAny => vec![rng.index(cluster.members.len())],
            Faults::KillAll => (0..cluster.members.len()).collect(),
        };
        let term = term(cluster).await;
        for victim in &victims {
            cluster.kill(*victim)?;
            effects.kills += 1;
            effects.leaders += usize::from(leader == Some(*victim));
        }
        tokio::time::sleep(Duration::from_millis(rng.between(1_000, 2_000))).await;
        // All are started before one is waited for: a majority may be needed to get ready.
        for victim in &victims {
            cluster.spawn(*victim)?;
        }
        for victim in &victims {
            cluster.ready(*victim).await?;
        }
        cluster.wait_leader(Duration::from_secs(30)).await?;
        effects.changes += usize::from(self::term(cluster).await > term);
    }
    tokio::time::sleep_until(until.into()).await;
    Ok(effects)
}

async fn term(cluster: &Cluster) -> u64 {
    let mut term = 0;
    for number in 0..cluster.members.len() {
        term = term.max(cluster.status_of(number).await.map_or(0, |status| status.term));
    }
    term
}
