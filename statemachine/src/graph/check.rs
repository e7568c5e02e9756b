//! The shape of a workflow, checked once more where it is stored: `apply` does not trust who proposes. The parser
//! says the same in better words, with places.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use clawhive_proto::Workflow;
use clawhive_proto::schedule::When;

use crate::key::TOP_PRIORITY;

/// The most tasks that a workflow may have.
pub(crate) const MAX_TASKS: usize = 100_000;

/// The most schedules that a workflow may have.
pub(crate) const MAX_SCHEDULES: usize = 100;

/// The graph from the upstreams' side.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Graph {
    /// By task: who needs it, ascending.
    pub dependents: Vec<Vec<u32>>,
    pub edges: u32,
}

/// Names are part of keys; NUL ends them there.
pub(crate) fn name(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{what} is empty"));
    }
    if text.contains('\0') {
        return Err(format!("{what} holds a NUL"));
    }
    Ok(())
}

/// Checks a workflow and turns its `needs` around.
pub(crate) fn workflow(workflow: &Workflow) -> Result<Graph, String> {
    name("the namespace", &workflow.namespace)?;
    name("the workflow's name", &workflow.name)?;
    if workflow.priority > TOP_PRIORITY {
        return Err(format!("priority {} is above {TOP_PRIORITY}", workflow.priority));
    }
    let count = workflow.tasks.len();
    if count == 0 {
        return Err(String::from("the workflow has no tasks"));
    }
    if count > MAX_TASKS {
        return Err(format!("the workflow has {count} tasks, more than {MAX_TASKS}"));
    }
    let mut names = BTreeSet::new();
    let mut dependents = vec![Vec::new(); count];
    let mut edges = 0;
    for (index, task) in workflow.tasks.iter().enumerate() {
        name("a task's name", &task.name)?;
        if !names.insert(task.name.as_str()) {
            return Err(format!("two tasks are named {}", task.name));
        }
        if task.executor.is_none() {
            return Err(format!("task {} has no executor", task.name));
        }
        let mut last = None;
        for need in &task.needs {
            if *need as usize >= count {
                return Err(format!("task {} needs task number {need}, of {count}", task.name));
            }
            if *need as usize == index {
                return Err(format!("task {} needs itself", task.name));
            }
            if last.is_some_and(|last| last >= *need) {
                return Err(format!("the needs of task {} are not ascending", task.name));
            }
            last = Some(*need);
            dependents[*need as usize].push(index as u32);
            edges += 1;
        }
    }
    no_cycle(workflow, &dependents)?;
    schedules(workflow)?;
    Ok(Graph { dependents, edges })
}

/// Checks the schedules of a workflow. What their texts mean is for the leader to say.
pub(crate) fn schedules(workflow: &Workflow) -> Result<(), String> {
    if workflow.schedules.len() > MAX_SCHEDULES {
        return Err(format!("the workflow has more than {MAX_SCHEDULES} schedules"));
    }
    let mut names = BTreeSet::new();
    for schedule in &workflow.schedules {
        if schedule.name.contains('\0') {
            return Err(String::from("a schedule's name holds a NUL"));
        }
        if !names.insert(schedule.name.as_str()) {
            return Err(format!("two schedules are named {:?}", schedule.name));
        }
        match &schedule.when {
            None => return Err(format!("schedule {:?} says neither cron nor every", schedule.name)),
            Some(When::EveryMs(0)) => return Err(format!("schedule {:?} is every 0 ms", schedule.name)),
            Some(_) => {}
        }
    }
    Ok(())
}

/// Takes tasks away whose upstreams are gone, until none is left or only cycles are.
fn no_cycle(workflow: &Workflow, dependents: &[Vec<u32>]) -> Result<(), String> {
    let mut remaining: Vec<usize> = workflow.tasks.iter().map(|task| task.needs.len()).collect();
    let mut free: Vec<usize> = (0..remaining.len()).filter(|index| remaining[*index] == 0).collect();
    let mut gone = 0;
    while let Some(index) = free.pop() {
        gone += 1;
        for dependent in &dependents[index] {
            let dependent = *dependent as usize;
            remaining[dependent] -= 1;
            if remaining[dependent] == 0 {
                free.push(dependent);
            }
        }
    }
    match remaining.iter().position(|remaining| *remaining > 0) {
        Some(index) if gone < remaining.len() => {
            Err(format!("task {} waits for itself through others", workflow.tasks[index].name))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clawhive_proto::{Task, task};

    fn graph(needs: &[&[u32]]) -> Workflow {
        let tasks = needs.iter().enumerate().map(|(index, needs)| Task {
            name: format!("t{index}"),
            needs: needs.to_vec(),
            executor: Some(task::Executor::Run(String::from("true"))),
            ..Task::default()
        });
        Workflow {
            namespace: "default".into(),
            name: "w".into(),
            tasks: tasks.collect(),
            ..Workflow::default()
        }
    }

    #[test]
    fn a_diamond_is_turned_around() {
        let graph = workflow(&graph(&[&[], &[0], &[0], &[1, 2]])).unwrap();
        assert_eq!(graph.dependents, vec![vec![1, 2], vec![3], vec![3], vec![]]);
        assert_eq!(graph.edges, 4);
    }

    #[test]
    fn wrong_shapes_are_refused() {
        for (needs, part) in [
            (&[][..], "no tasks"),
            (&[&[0u32][..]][..], "needs itself"),
            (&[&[7][..]][..], "needs task number 7"),
            (&[&[][..], &[], &[1, 0]][..], "not ascending"),
            (&[&[][..], &[0, 0]][..], "not ascending"),
            (&[&[][..], &[0, 3], &[1], &[2]][..], "waits for itself"),
        ] {
            let error = workflow(&graph(needs)).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let mut twice = graph(&[&[], &[]]);
        twice.tasks[1].name = "t0".into();
        assert!(workflow(&twice).unwrap_err().contains("two tasks"));
        let mut empty = graph(&[&[]]);
        empty.tasks[0].executor = None;
        assert!(workflow(&empty).unwrap_err().contains("executor"));
        let mut nul = graph(&[&[]]);
        nul.name = "a\0b".into();
        assert!(workflow(&nul).unwrap_err().contains("NUL"));
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let needs: Vec<Vec<u32>> =
            (0..50_000u32).map(|index| index.checked_sub(1).into_iter().collect()).collect();
        let needs: Vec<&[u32]> = needs.iter().map(Vec::as_slice).collect();
        assert_eq!(workflow(&graph(&needs)).unwrap().edges, 49_999);
    }
}
