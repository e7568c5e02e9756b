//! Where the nodes of the cluster are, as far as this node knows. Must not: talk to anybody.

use std::collections::{BTreeMap, BTreeSet};

/// How many addresses are kept of which it is not known who is there.
const MAX_RUMOURS: usize = 64;

/// Where nodes are. Raft's own addresses lag behind: it learns of a moved node only through that node.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// As the table of nodes says.
    table: BTreeMap<u64, String>,
    /// Nodes that were found elsewhere than the table says.
    found: BTreeMap<u64, String>,
    /// Addresses of which it is not known who is there.
    rumours: BTreeSet<String>,
    removed: BTreeSet<u64>,
}

impl Places {
    /// Takes in the table of nodes.
    pub(super) fn learn(&mut self, table: BTreeMap<u64, String>, removed: BTreeSet<u64>) {
        let old = std::mem::replace(&mut self.table, table);
        // A row that changed was announced by the node itself: that is newer than what was found.
        self.found.retain(|node, _| match (old.get(node), self.table.get(node)) {
            (Some(before), Some(now)) => before == now,
            (Some(_), None) => false,
            (None, _) => true,
        });
        self.removed = removed;
    }

    /// Notes that a node is here.
    pub(super) fn find(&mut self, node: u64, addr: &str) {
        if self.table.get(&node).is_some_and(|known| known == addr) {
            self.found.remove(&node);
        } else {
            self.found.insert(node, addr.to_owned());
        }
    }

    /// Notes that somebody may be here.
    pub(super) fn rumour(&mut self, addr: &str) {
        if self.rumours.len() < MAX_RUMOURS {
            self.rumours.insert(addr.to_owned());
        }
    }

    /// Where a node is.
    pub(super) fn of(&self, node: u64) -> Option<&String> {
        self.found.get(&node).or_else(|| self.table.get(&node))
    }

    /// Where each node is.
    pub(super) fn known(&self) -> BTreeMap<u64, String> {
        let mut known = self.table.clone();
        known.extend(self.found.clone());
        known
    }

    /// Where somebody may be.
    pub(super) fn rumours(&self) -> &BTreeSet<String> {
        &self.rumours
    }

    /// The table of nodes says that the node was removed.
    pub(super) fn is_removed(&self, node: u64) -> bool {
        self.removed.contains(&node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(u64, &str)]) -> BTreeMap<u64, String> {
        rows.iter().map(|(node, addr)| (*node, (*addr).to_owned())).collect()
    }

    #[test]
    fn what_was_found_counts_until_the_table_changes() {
        let mut places = Places::default();
        // Found before the table was read.
        places.find(2, "new:2");
        places.learn(table(&[(1, "old:1"), (2, "old:2")]), BTreeSet::new());
        assert_eq!(places.of(2).unwrap(), "new:2");
        assert_eq!(places.of(1).unwrap(), "old:1");
        assert_eq!(places.known(), table(&[(1, "old:1"), (2, "new:2")]));
        // Another row changes.
        places.learn(table(&[(1, "new:1"), (2, "old:2")]), BTreeSet::new());
        assert_eq!(places.of(2).unwrap(), "new:2");
        // This row changes: the node has announced itself.
        places.learn(table(&[(1, "new:1"), (2, "newer:2")]), BTreeSet::new());
        assert_eq!(places.of(2).unwrap(), "newer:2");
        places.find(2, "newest:2");
        places.learn(table(&[(1, "new:1")]), BTreeSet::from([2]));
        assert_eq!(places.of(2), None);
        assert!(places.is_removed(2));
    }
}
