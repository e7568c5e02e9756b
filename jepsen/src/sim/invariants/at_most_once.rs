//! A task with `delivery: at_most_once` is started at most once, whatever becomes of its claw.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Law;
use crate::sim::graphs::Graph;
use crate::sim::history::{Fact, Place};

/// The tasks of that kind that were started.
#[derive(Default)]
pub(super) struct AtMostOnce {
    graphs: BTreeMap<u64, Rc<Graph>>,
    started: BTreeSet<Place>,
}

impl Law for AtMostOnce {
    fn name(&self) -> &'static str {
        "at-most-once"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        match fact {
            Fact::RunCreated { run, graph, .. } => {
                self.graphs.insert(*run, graph.clone());
            }
            Fact::Began { place, fence, at_ms }
                if self.graphs.get(&place.0).is_some_and(|graph| graph.is_at_most_once(place.1))
                    && !self.started.insert(*place) =>
            {
                return Err(format!(
                    "run {} task {} started again at {at_ms} ms under token {fence}",
                    place.0, place.1
                ));
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::*;
    use super::*;

    #[test]
    fn a_second_start_breaks_it_for_such_tasks_only() {
        let graph = Rc::new(Graph { at_most_once: vec![true, false], ..Graph::default() });
        let began = |task, fence| Fact::Began { place: (1, task), fence, at_ms: fence };
        let judge = |facts: &[Fact<'_>]| verdict(&mut AtMostOnce::default(), facts).is_ok();
        assert!(judge(&[created(&graph), began(0, 3), began(1, 3), began(1, 4)]));
        assert!(!judge(&[created(&graph), began(0, 3), began(0, 4)]));
    }
}
