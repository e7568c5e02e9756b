//! The graph of a definition: needs become positions, and unknown upstreams, needs on oneself and cycles are reported. All
//! walks are iterative and linear: a chain of any length is a definition like any other.

use std::collections::HashMap;

use super::keys::nearest;
use super::report::{Path, Report};
use super::source::Span;
use super::task::{Draft, Need};

/// Cycles reported of one file, at most.
const MAX_CYCLES: usize = 20;

/// Names of a cycle that are printed, at most.
const MAX_NAMES: usize = 24;

/// Turns the needs of all tasks into positions. True when the graph has no fault.
pub(crate) fn resolve(report: &mut Report<'_>, drafts: &mut [Draft<'_>], path: &Path<'_>) -> bool {
    let positions: HashMap<String, u32> = drafts
        .iter()
        .enumerate()
        .map(|(at, draft)| (draft.task.name.clone(), u32::try_from(at).unwrap_or(u32::MAX)))
        .collect();
    let mut sound = true;
    let mut spans: Vec<Vec<(u32, Span, Option<usize>)>> = Vec::with_capacity(drafts.len());
    for at in 0..drafts.len() {
        let needs = std::mem::take(&mut drafts[at].needs);
        let name = &drafts[at].task.name;
        let task_path = path.key(name);
        let needs_path = task_path.key("needs");
        let mut resolved: Vec<(u32, Span, Option<usize>)> = Vec::with_capacity(needs.len());
        for need in &needs {
            let item = need.index.map(|index| needs_path.index(index));
            let here = item.as_ref().unwrap_or(&needs_path);
            match positions.get(need.name) {
                Some(position) if *position as usize == at => {
                    let message = format!("the task `{name}` needs itself");
                    report.error("self-need", need.span, here, message, "remove this need");
                    sound = false;
                }
                Some(position) => resolved.push((*position, need.span, need.index)),
                None => {
                    unknown(report, drafts, name, need, here);
                    sound = false;
                }
            }
        }
        // Stable: of equal needs the first written one stays.
        resolved.sort_by_key(|(position, ..)| *position);
        let mut once: Vec<(u32, Span, Option<usize>)> = Vec::with_capacity(resolved.len());
        for need in resolved {
            match once.last() {
                Some(last) if last.0 == need.0 => {
                    let item = need.2.map(|index| needs_path.index(index));
                    let here = item.as_ref().unwrap_or(&needs_path);
                    let upstream = &drafts[need.0 as usize].task.name;
                    let message = format!("`{name}` needs `{upstream}` twice; it counts once");
                    report.warning("duplicate-need", need.1, here, message, "remove one of them");
                }
                _ => once.push(need),
            }
        }
        spans.push(once);
    }
    for (draft, needs) in drafts.iter_mut().zip(&spans) {
        draft.task.needs = needs.iter().map(|(position, ..)| *position).collect();
    }
    cycles(report, drafts, &spans, path) && sound
}

fn unknown(report: &mut Report<'_>, drafts: &[Draft<'_>], name: &str, need: &Need<'_>, path: &Path<'_>) {
    let message =
        format!("the task `{name}` needs `{}`, which does not exist", super::values::shortened(need.name));
    let names = || drafts.iter().map(|draft| draft.task.name.as_str()).filter(|other| *other != name);
    let help = match names()
        .find(|other| other.eq_ignore_ascii_case(need.name))
        .or_else(|| nearest(need.name, names()))
    {
        Some(near) if near.eq_ignore_ascii_case(need.name) => {
            format!("did you mean `{near}`? Names are case-sensitive")
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => "no task has such a name".to_owned(),
    };
    report.error("unknown-need", need.span, path, message, help);
}

#[derive(Clone, Copy, PartialEq)]
enum Mark {
    New,
    OnPath,
    Done,
}

/// Reports a cycle for every edge that closes one in a depth-first walk along the flow; true when there is none.
fn cycles(
    report: &mut Report<'_>,
    drafts: &[Draft<'_>],
    needs: &[Vec<(u32, Span, Option<usize>)>],
    path: &Path<'_>,
) -> bool {
    let dependents = dependents(drafts);
    let mut marks = vec![Mark::New; drafts.len()];
    let mut place_on_path = vec![0usize; drafts.len()];
    let mut trail: Vec<(u32, usize)> = Vec::new();
    let mut found = 0;
    for root in 0..drafts.len() {
        if marks[root] != Mark::New {
            continue;
        }
        marks[root] = Mark::OnPath;
        place_on_path[root] = 0;
        trail.push((u32::try_from(root).unwrap_or(u32::MAX), 0));
        while let Some((at, next)) = trail.last_mut() {
            let Some(child) = dependents[*at as usize].get(*next).copied() else {
                marks[*at as usize] = Mark::Done;
                trail.pop();
                continue;
            };
            *next += 1;
            match marks[child as usize] {
                Mark::Done => {}
                Mark::New => {
                    marks[child as usize] = Mark::OnPath;
                    place_on_path[child as usize] = trail.len();
                    trail.push((child, 0));
                }
                Mark::OnPath => {
                    found += 1;
                    if found <= MAX_CYCLES {
                        let around: Vec<u32> =
                            trail[place_on_path[child as usize]..].iter().map(|(task, _)| *task).collect();
                        report_cycle(report, drafts, needs, &around, path);
                    }
                }
            }
        }
    }
    found == 0
}

/// For each task, the tasks that need it.
pub(crate) fn dependents(drafts: &[Draft<'_>]) -> Vec<Vec<u32>> {
    let mut dependents = vec![Vec::new(); drafts.len()];
    for (at, draft) in drafts.iter().enumerate() {
        for need in &draft.task.needs {
            dependents[*need as usize].push(u32::try_from(at).unwrap_or(u32::MAX));
        }
    }
    dependents
}

fn report_cycle(
    report: &mut Report<'_>,
    drafts: &[Draft<'_>],
    needs: &[Vec<(u32, Span, Option<usize>)>],
    around: &[u32],
    path: &Path<'_>,
) {
    // Start at the task that stands first in the file, so that the same cycle always reads the same.
    let first = around.iter().enumerate().min_by_key(|(_, task)| **task).map_or(0, |(at, _)| at);
    let mut turned: Vec<u32> = around[first..].iter().chain(&around[..first]).copied().collect();
    turned.extend(turned.first().copied());
    let name = |task: &u32| drafts[*task as usize].task.name.as_str();
    let chain = if turned.len() <= MAX_NAMES {
        turned.iter().map(name).collect::<Vec<_>>().join(" -> ")
    } else {
        let half = MAX_NAMES / 2;
        let left = turned[..half].iter().map(name).collect::<Vec<_>>().join(" -> ");
        let right = turned[turned.len() - half..].iter().map(name).collect::<Vec<_>>().join(" -> ");
        format!("{left} -> ({} more) -> {right}", turned.len() - 2 * half)
    };
    let (start, last) = (turned[0], turned[turned.len() - 2]);
    let need = needs[start as usize].iter().find(|(position, ..)| *position == last);
    let (span, index) =
        need.map_or((drafts[start as usize].name_span, None), |(_, span, index)| (*span, *index));
    let task_path = path.key(name(&start));
    let needs_path = task_path.key("needs");
    let item = index.map(|index| needs_path.index(index));
    let message = format!("the tasks form a cycle: {chain}");
    let help = format!(
        "`{}` waits for `{}`, which waits for it; remove one of these needs",
        name(&start),
        name(&last)
    );
    report.error("cycle", span, item.as_ref().unwrap_or(&needs_path), message, help);
}
