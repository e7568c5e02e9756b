//! What readers get: a consistent copy of the state at one applied entry.

use std::ops::ControlFlow;
use std::sync::Arc;

use clawhive_statemachine::{ReadStore, Table, Value};

use crate::merge::Layers;
use crate::overlay::Layer;
use crate::rowkey::RowKey;
use crate::statefile::Rows;
use crate::types::LogId;

/// The state right after one entry, for as long as it is held: cheap to take and to clone, never changes, blocks
/// nobody. Don't hold one for longer than a piece of work takes: it keeps freed pages of the state file from being used
/// again.
#[derive(Clone)]
pub struct View(Arc<Moment>);

/// Everything that belongs together.
pub(crate) struct Moment {
    pub(crate) active: Layer,
    pub(crate) frozen: Option<Layer>,
    pub(crate) disk: Rows,
    pub(crate) applied: Option<LogId>,
}

impl View {
    pub(crate) fn new(moment: Moment) -> View {
        View(Arc::new(moment))
    }

    /// The newest entry that this view includes; 0 before the first.
    pub fn applied_index(&self) -> u64 {
        self.0.applied.map_or(0, |id| id.index)
    }

    pub(crate) fn applied(&self) -> Option<LogId> {
        self.0.applied
    }

    fn layers(&self) -> Layers<'_> {
        Layers {
            batch: None,
            active: &self.0.active.rows,
            frozen: self.0.frozen.as_ref().map(|layer| &layer.rows),
            disk: &self.0.disk,
        }
    }
}

impl ReadStore for View {
    fn get(&self, table: Table, key: &[u8]) -> Option<Value> {
        self.layers().get(&RowKey::new(table, key))
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        self.layers().scan(table, from, until, false, visit);
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        until: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &Value) -> ControlFlow<()>,
    ) {
        self.layers().scan(table, from, until, true, visit);
    }
}
