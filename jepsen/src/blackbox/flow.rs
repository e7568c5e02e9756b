//! Workflows for real clusters: random ones, and recorded executions in the WfFormat 1.5 layout. Owns their plain
//! picture and the definition text; each task appends one line to a counter file when it succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Map, Value, json};

use crate::rng::Rng;

/// A task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Positions of upstreams.
    pub needs: Vec<usize>,
    /// How long it sleeps.
    pub sleep_ms: u64,
    /// Whether it ends with `exit 1` instead of counting.
    pub fails: bool,
}

/// A workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flow {
    /// Its name.
    pub name: String,
    /// Its tasks; they are called `t0`, `t1`, ...
    pub steps: Vec<Step>,
    /// Tries of each task.
    pub max_attempts: u32,
}

impl Flow {
    /// A random one of up to 20 short tasks; now and then one of them fails.
    pub fn random(rng: &mut Rng, name: &str) -> Flow {
        let count = rng.between(1, 20) as usize;
        let steps = (0..count)
            .map(|task| {
                let wanted = rng.below(4).min(task as u64);
                let needs: BTreeSet<usize> = (0..wanted).map(|_| rng.index(task)).collect();
                let fails = rng.chance(15);
                Step { needs: needs.into_iter().collect(), sleep_ms: rng.between(5, 200), fails }
            })
            .collect();
        Flow { name: name.to_owned(), steps, max_attempts: 2 }
    }

    /// Reads a recorded execution; each task sleeps its recorded time, divided.
    pub fn recorded(text: &str, name: &str, divisor: f64) -> Result<Flow> {
        let root: Value = serde_json::from_str(text).context("not JSON")?;
        let tasks = |part: &str| {
            let tasks = root["workflow"][part]["tasks"].as_array();
            tasks.with_context(|| format!("no workflow.{part}.tasks"))
        };
        let specified = tasks("specification")?;
        let id = |task: &Value| task["id"].as_str().map(str::to_owned).context("a task without id");
        let mut places = BTreeMap::new();
        for (place, task) in specified.iter().enumerate() {
            if places.insert(id(task)?, place).is_some() {
                bail!("two tasks have the id {}", id(task)?);
            }
        }
        let mut steps = vec![Step::default(); specified.len()];
        for (place, task) in specified.iter().enumerate() {
            let parents = task["parents"].as_array().map_or(&[][..], Vec::as_slice);
            let mut needs = BTreeSet::new();
            for parent in parents {
                let parent = parent.as_str().context("a parent that is no text")?;
                needs.insert(*places.get(parent).with_context(|| format!("unknown parent {parent}"))?);
            }
            steps[place].needs = needs.into_iter().collect();
        }
        for task in tasks("execution")? {
            let seconds = task["runtimeInSeconds"].as_f64().unwrap_or(0.0);
            if let Some(place) = places.get(&id(task)?) {
                steps[*place].sleep_ms = (seconds * 1000.0 / divisor).round() as u64;
            }
        }
        Ok(Flow { name: name.to_owned(), steps, max_attempts: 1 })
    }

    /// The definition, with lines going to this file.
    pub fn definition(&self, counter: &Path) -> String {
        let mut tasks = Map::new();
        for (place, step) in self.steps.iter().enumerate() {
            let needs: Vec<String> = step.needs.iter().map(|need| format!("t{need}")).collect();
            // `>>` opens with O_APPEND and echo writes once, so that lines of many tasks do not mix.
            let end = match step.fails {
                true => "exit 1".to_owned(),
                false => format!(
                    "echo \"$CLAWHIVE_RUN $CLAWHIVE_TASK $CLAWHIVE_ATTEMPT\" >> '{}'",
                    counter.display()
                ),
            };
            let run = format!("sleep {}.{:03}\n{end}", step.sleep_ms / 1000, step.sleep_ms % 1000);
            let retries = json!({"max_attempts": self.max_attempts, "delay": "200ms", "backoff": "fixed"});
            tasks.insert(format!("t{place}"), json!({"needs": needs, "run": run, "retries": retries}));
        }
        json!({"name": self.name, "tasks": tasks}).to_string()
    }

    /// Tasks that cannot run when these fail: all their descendants.
    pub fn descendants(&self, of: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut reached = of.clone();
        loop {
            let more: Vec<usize> = (0..self.steps.len())
                .filter(|task| !reached.contains(task))
                .filter(|task| self.steps[*task].needs.iter().any(|need| reached.contains(need)))
                .collect();
            if more.is_empty() {
                return reached.difference(of).copied().collect();
            }
            reached.extend(more);
        }
    }

    /// Tasks that fail, whatever happens.
    pub fn failing(&self) -> BTreeSet<usize> {
        (0..self.steps.len()).filter(|task| self.steps[*task].fails).collect()
    }

    /// The longest chain of sleeps.
    pub fn critical_path_ms(&self) -> u64 {
        let mut done = vec![None; self.steps.len()];
        (0..self.steps.len()).map(|task| self.end_of(task, &mut done)).max().unwrap_or(0)
    }

    fn end_of(&self, task: usize, done: &mut Vec<Option<u64>>) -> u64 {
        if let Some(end) = done[task] {
            return end;
        }
        let start = self.steps[task].needs.iter().map(|need| self.end_of(*need, done)).max().unwrap_or(0);
        let end = start + self.steps[task].sleep_ms;
        done[task] = Some(end);
        end
    }
}

/// Recorded executions: the files of a folder, or the one that is built in.
pub fn recordings(folder: Option<&Path>) -> Result<Vec<(String, String)>> {
    let Some(folder) = folder else {
        return Ok(vec![(
            "recording-60".to_owned(),
            include_str!("../../testdata/recording-60.json").to_owned(),
        )]);
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .with_context(|| format!("cannot read {}", folder.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    if files.is_empty() {
        bail!("no recording in {}", folder.display());
    }
    let named = |path: &PathBuf| {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default();
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok((name, text))
    };
    files.iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diamond() -> Flow {
        let step = |needs: &[usize]| Step { needs: needs.to_vec(), sleep_ms: 10, fails: false };
        Flow {
            name: "d".to_owned(),
            steps: vec![step(&[]), step(&[0]), step(&[0]), step(&[1, 2]), step(&[])],
            max_attempts: 1,
        }
    }

    #[test]
    fn descendants_are_all_that_is_reached_and_nothing_else() {
        assert_eq!(diamond().descendants(&BTreeSet::from([1])), BTreeSet::from([3]));
        assert_eq!(diamond().descendants(&BTreeSet::from([0])), BTreeSet::from([1, 2, 3]));
        assert_eq!(diamond().critical_path_ms(), 30);
    }

    #[test]
    fn the_built_in_recording_is_a_graph_of_sixty_tasks() {
        let recordings = recordings(None).unwrap();
        let flow = Flow::recorded(&recordings[0].1, "r", 1000.0).unwrap();
        assert_eq!(flow.steps.len(), 60);
        assert_eq!(flow.steps.iter().filter(|step| step.needs.is_empty()).count(), 6);
        assert!(flow.critical_path_ms() > 100);
    }

    #[test]
    fn a_recording_with_an_unknown_parent_is_refused() {
        let text = r#"{"workflow": {"specification": {"tasks": [{"id": "a", "parents": ["b"]}]}, "execution": {"tasks": []}}}"#;
        let error = Flow::recorded(text, "r", 1.0).unwrap_err();
        assert!(error.to_string().contains("unknown parent b"), "{error}");
    }

    #[test]
    fn a_definition_counts_only_what_succeeds() {
        let mut flow = diamond();
        flow.steps[1].fails = true;
        let text = flow.definition(Path::new("/tmp/c"));
        assert_eq!(text.matches(">> '/tmp/c'").count(), 4);
        assert_eq!(text.matches("exit 1").count(), 1);
    }
}
