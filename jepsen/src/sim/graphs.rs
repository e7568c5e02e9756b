//! Random workflows. Owns the plain picture of a graph that oracles judge by, beside the definition that clients send.

use clawhive_proto::{Backoff, Delivery, OnFailure, Retries, Task, Timeouts, Workflow, task::Executor};

use crate::rng::{Rng, splitmix};

/// A workflow as the client made it.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Upstreams of each task.
    pub needs: Vec<Vec<u32>>,
    /// Tries allowed for each task.
    pub max_attempts: Vec<u32>,
    /// Tasks that fail however often they are tried.
    pub doomed: Vec<bool>,
    /// Tasks whose template does not resolve.
    pub unresolvable: Vec<bool>,
    /// Tasks that must never run twice; empty is none.
    pub at_most_once: Vec<bool>,
    /// Tasks that may run at once; 0 is no limit.
    pub max_parallel: u32,
    /// What clients send.
    pub workflow: Workflow,
    /// Its content hash.
    pub hash: Vec<u8>,
    /// Longest time of an attempt.
    pub longest_ms: u64,
    /// No attempt of it ever fails by itself.
    pub healthy: bool,
}

/// More tasks than one entry may tell of an end.
const WIDE: u32 = 1_100;

impl Graph {
    /// A random workflow of a name. `fails`: some tasks are doomed.
    pub fn random(rng: &mut Rng, name: &str, fails: bool) -> Graph {
        let mut doomed_root = false;
        let needs = match rng.below(100) {
            0..15 => chain(rng.between(1, 8) as u32),
            15..25 => (0..rng.between(1, 10)).map(|_| Vec::new()).collect(),
            25..45 => fan(rng.between(1, 12) as u32),
            45..98 => layered(rng),
            _ => {
                doomed_root = fails;
                let leaves = if fails { WIDE } else { 40 };
                std::iter::once(Vec::new()).chain((0..leaves).map(|_| vec![0])).collect()
            }
        };
        let count = needs.len();
        let mut graph = Graph {
            max_attempts: (0..count).map(|_| rng.between(1, 3) as u32).collect(),
            doomed: (0..count).map(|_| fails && rng.chance(25)).collect(),
            unresolvable: (0..count).map(|_| fails && rng.chance(10)).collect(),
            max_parallel: if rng.chance(300) { rng.between(1, 3) as u32 } else { 0 },
            longest_ms: *rng.pick(&[50, 1_000, 5_000, 15_000]),
            needs,
            ..Graph::default()
        };
        if count > 30 {
            graph.longest_ms = 50;
        }
        if doomed_root {
            graph.doomed[0] = true;
        }
        graph.at_most_once = (0..count).map(|_| rng.chance(60)).collect();
        graph.workflow = graph.definition(rng, name);
        let text = format!("{:?}", graph.workflow);
        let hash = text.bytes().fold(0, |hash, byte| splitmix(hash ^ u64::from(byte)));
        graph.hash = (0..4).flat_map(|part| splitmix(hash ^ part).to_be_bytes()).collect();
        graph
    }

    /// A short workflow that nothing but a lost claw can hold up: with it, something can succeed in every seed.
    pub fn healthy(rng: &mut Rng) -> Graph {
        let mut graph = Graph { longest_ms: 500, healthy: true, ..Graph::default() };
        for (task, needs) in fan(2).into_iter().enumerate() {
            let name = format!("t{task}");
            let retries = Some(Retries { max_attempts: 3, ..Retries::default() });
            let executor = Some(Executor::Run("true".to_owned()));
            graph.workflow.tasks.push(Task {
                name,
                needs: needs.clone(),
                executor,
                retries,
                ..Task::default()
            });
            graph.needs.push(needs);
        }
        graph.workflow.namespace = "default".to_owned();
        graph.workflow.name = "healthy".to_owned();
        graph.workflow.priority = 9;
        graph.max_attempts = vec![3; graph.needs.len()];
        graph.doomed = vec![false; graph.needs.len()];
        graph.unresolvable = graph.doomed.clone();
        graph.hash = (0..4).flat_map(|_| rng.draw().to_be_bytes()).collect();
        graph
    }

    /// Whether a task must never run twice.
    pub fn is_at_most_once(&self, task: u32) -> bool {
        self.at_most_once.get(task as usize).copied().unwrap_or(false)
    }

    fn definition(&self, rng: &mut Rng, name: &str) -> Workflow {
        let mut workflow = Workflow {
            namespace: "default".to_owned(),
            name: name.to_owned(),
            priority: rng.below(10) as u32,
            max_parallel: self.max_parallel,
            timeout_ms: if rng.chance(60) { rng.between(20_000, 200_000) } else { 0 },
            ..Workflow::default()
        };
        workflow.set_on_failure(if rng.chance(250) { OnFailure::Stop } else { OnFailure::Continue });
        let queue_ms = if rng.chance(80) { rng.between(500, 60_000) } else { 0 };
        for (position, needs) in self.needs.iter().enumerate() {
            let mut retries = Retries {
                max_attempts: self.max_attempts[position],
                delay_ms: *rng.pick(&[0, 100, 2_000, 30_000]),
                max_delay_ms: 60_000,
                jitter_permille: *rng.pick(&[0, 100]),
                ..Retries::default()
            };
            retries.set_backoff(*rng.pick(&[Backoff::Exponential, Backoff::Fixed, Backoff::Linear]));
            workflow.tasks.push(Task {
                name: format!("t{position}"),
                needs: needs.clone(),
                executor: Some(Executor::Run("true".to_owned())),
                retries: Some(retries),
                timeout: Some(Timeouts { queue_ms, execution_ms: 0, grace_ms: 500 }),
                templated: self.unresolvable[position] || rng.chance(100),
                delivery: match self.at_most_once[position] {
                    true => Delivery::AtMostOnce.into(),
                    false => Delivery::AtLeastOnce.into(),
                },
                ..Task::default()
            });
        }
        workflow
    }
}

fn chain(length: u32) -> Vec<Vec<u32>> {
    (0..length).map(|task| task.checked_sub(1).into_iter().collect()).collect()
}

/// One task, then some side by side, then one that needs them all.
fn fan(width: u32) -> Vec<Vec<u32>> {
    let mut needs = vec![Vec::new()];
    needs.extend((0..width).map(|_| vec![0]));
    needs.push((1..=width).collect());
    needs
}

/// Each task needs up to four of the earlier ones.
fn layered(rng: &mut Rng) -> Vec<Vec<u32>> {
    let count = rng.between(2, 20) as u32;
    (0..count)
        .map(|task| {
            let wanted = rng.below(4).min(u64::from(task));
            let mut needs: Vec<u32> = (0..wanted).map(|_| rng.below(u64::from(task)) as u32).collect();
            needs.sort_unstable();
            needs.dedup();
            needs
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_ascending_and_point_backwards() {
        let mut rng = Rng::new(5);
        let mut wide = 0;
        for _ in 0..500 {
            let graph = Graph::random(&mut rng, "g", true);
            wide += usize::from(graph.needs.len() > 1_000);
            for (task, needs) in graph.needs.iter().enumerate() {
                assert!(needs.is_sorted_by(|a, b| a < b), "{needs:?}");
                assert!(needs.iter().all(|need| (*need as usize) < task), "{task}: {needs:?}");
            }
        }
        assert!(wide > 0);
    }
}
