//! Replicas at the same applied index hold the same dump, also after a crash and a replay in other batches.

use std::collections::BTreeMap;

use super::Law;
use crate::sim::history::Fact;

/// The first dump seen at each index.
#[derive(Default)]
pub(super) struct EqualDumps {
    first: BTreeMap<u64, (usize, u64)>,
}

impl Law for EqualDumps {
    fn name(&self) -> &'static str {
        "equal-dumps"
    }

    fn see(&mut self, fact: &Fact<'_>) -> Result<(), String> {
        let Fact::Applied { replica, index, digest } = fact else { return Ok(()) };
        let (other, first) = *self.first.entry(*index).or_insert((*replica, *digest));
        if first == *digest {
            return Ok(());
        }
        Err(format!(
            "at index {index} replica {replica} holds {digest:016x} and replica {other} {first:016x}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::verdict;
    use super::*;

    #[test]
    fn another_dump_at_the_same_index_breaks_it() {
        let applied = |replica, index, digest| Fact::Applied { replica, index, digest };
        let mut law = EqualDumps::default();
        assert_eq!(verdict(&mut law, &[applied(0, 1, 10), applied(0, 2, 20), applied(1, 1, 10)]), Ok(()));
        assert!(verdict(&mut law, &[applied(2, 2, 10)]).is_err());
    }
}
