//! Random graphs and random commands, stale ones among them, against a model that recomputes everything from scratch;
//! every law after every entry; and in the end every run comes to its end.

mod drive;
mod naive;

use clawhive_statemachine::Limits;
use clawhive_statemachine::proto::*;
use proptest::prelude::*;

use crate::cluster::{Cluster, put, task, workflow};
use drive::{Driver, Op};

/// A random workflow: each task may need any that comes before it in some order.
fn graphs() -> impl Strategy<Value = Workflow> {
    let tasks = prop::collection::vec((any::<u8>(), 1u32..4, 0u8..4), 1..8);
    (tasks, 0u32..4, any::<bool>(), any::<bool>(), 0u32..3, 0u8..4).prop_map(
        |(shapes, max_parallel, stop, backwards, priority, timeout)| {
            let count = shapes.len();
            let place = |index: usize| if backwards { count - 1 - index } else { index };
            let mut tasks = vec![Task::default(); count];
            for (index, (mask, max_attempts, queue)) in shapes.into_iter().enumerate() {
                let mut needs: Vec<u32> = (0..index)
                    .filter(|other| mask >> (other % 8) & 1 == 1)
                    .map(|other| place(other) as u32)
                    .collect();
                needs.sort_unstable();
                let mut new = task(&format!("t{}", place(index)), &needs);
                new.retries = Some(Retries {
                    max_attempts,
                    delay_ms: 3_000,
                    backoff: Backoff::Fixed as i32,
                    ..Retries::default()
                });
                let queue_ms = if queue == 0 { 20_000 } else { 0 };
                new.timeout = Some(Timeouts { queue_ms, ..Timeouts::default() });
                tasks[place(index)] = new;
            }
            let mut workflow = workflow("random", tasks);
            workflow.max_parallel = max_parallel;
            workflow.priority = priority;
            workflow.timeout_ms = if timeout == 0 { 40_000 } else { 0 };
            workflow.set_on_failure(if stop { OnFailure::Stop } else { OnFailure::Continue });
            workflow
        },
    )
}

fn ops() -> impl Strategy<Value = (Op, bool)> {
    let op = prop_oneof![
        3 => any::<u8>().prop_map(Op::Submit),
        8 => (0u8..4, any::<u8>()).prop_map(|(limit, lie)| Op::Assign { limit, lie }),
        4 => any::<u8>().prop_map(Op::Start),
        10 => any::<u8>().prop_map(Op::Complete),
        6 => (any::<u8>(), 0u8..8).prop_map(|(task, reason)| Op::Fail { task, reason }),
        3 => (any::<u8>(), any::<u8>(), 0u8..3).prop_map(|(task, fence, what)| Op::Stale { task, fence, what }),
        1 => any::<u8>().prop_map(Op::Template),
        1 => any::<u8>().prop_map(Op::Cancel),
        5 => (0u16..9_000).prop_map(Op::Wait),
        5 => any::<bool>().prop_map(|lie| Op::Fire { lie }),
        3 => (1u64..4, any::<bool>(), 0u32..4).prop_map(|(claw, new, slots)| Op::Register { claw, new, slots }),
        2 => (1u64..4, any::<bool>()).prop_map(|(claw, lie)| Op::Expire { claw, lie }),
        2 => (1u64..4, any::<bool>()).prop_map(|(claw, lie)| Op::Renew { claw, lie }),
        3 => any::<u8>().prop_map(Op::Handover),
    ];
    (op, prop::bool::weighted(0.3))
}

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: 2_000, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(96))]

    /// The state machine and the model agree on every answer and on the state after every entry.
    #[test]
    fn agrees_with_the_model(
        graphs in prop::collection::vec(graphs(), 1..4),
        ops in prop::collection::vec(ops(), 1..120),
    ) {
        let mut driver = Driver::new(Cluster::new(), graphs);
        for (op, joined) in ops {
            driver.step(&op, joined);
        }
        driver.flush();
        driver.compare();
        driver.finish_all();
    }

    /// With a budget of few steps nearly everything goes through the backlog; the laws hold in between, and the end
    /// is reached all the same.
    #[test]
    fn a_small_budget_changes_no_end(
        graphs in prop::collection::vec(graphs(), 1..4),
        ops in prop::collection::vec(ops(), 1..80),
        steps in 0u32..4,
    ) {
        let mut cluster = Cluster::new();
        cluster.limits = Limits { steps };
        let mut driver = Driver::new(cluster, graphs);
        driver.compared = false;
        for (op, _) in ops {
            driver.step(&op, false);
        }
        driver.flush();
        driver.finish_all();
    }
}

#[test]
fn a_run_that_only_succeeds_tells_each_edge_once() {
    // A layered graph in which every task needs all of the layer before.
    let layers = 6u32;
    let width = 6u32;
    let mut tasks = Vec::new();
    for layer in 0..layers {
        let before: Vec<u32> = (layer.saturating_sub(1) * width..layer * width).collect();
        for index in 0..width {
            tasks.push(task(&format!("l{layer}i{index}"), &before));
        }
    }
    let mut cluster = Cluster::new();
    cluster.run(put(workflow("layers", tasks)));
    let mut driver = Driver::new(cluster, Vec::new());
    driver.compared = false;
    driver.cluster.run(crate::cluster::submit("layers"));
    driver.finish_all();
    let run = clawhive_statemachine::read::run(&driver.cluster.store, 1.into()).unwrap();
    assert_eq!((run.state(), run.succeeded), (RunState::Succeeded, layers * width));
}
