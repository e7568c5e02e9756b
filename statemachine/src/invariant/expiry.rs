//! What has an end is found by the index of ends, and the other way round.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;
use clawhive_proto::{IdempotencyRow, NodeRow, RequestRow};
use core::ops::ControlFlow;

use crate::invariant::Findings;
use crate::read::sound;
use crate::{ReadStore, Table, key};

pub(super) fn check(view: &dyn ReadStore, findings: &mut Findings) {
    let requests = ends(view, Table::Requests, |key, value| {
        sound::<RequestRow>(Table::Requests, key, value.clone()).expires_ms
    });
    findings.expect(
        requests == keys(view, Table::RequestExpiry),
        "request ids and their index of ends agree",
        || format!("{requests:02x?}"),
    );
    let idempotency = ends(view, Table::Idempotency, |key, value| {
        sound::<IdempotencyRow>(Table::Idempotency, key, value.clone()).expires_ms
    });
    findings.expect(
        idempotency == keys(view, Table::IdempotencyExpiry),
        "idempotency keys and their index of ends agree",
        || format!("{idempotency:02x?}"),
    );
    view.scan(Table::Nodes, &[], None, &mut |row_key, value| {
        let row: NodeRow = sound(Table::Nodes, row_key, value.clone());
        let back = view.get(Table::Joins, &row.join_id);
        findings.expect(back.as_deref() == Some(row_key), "a node is found by its join id", || {
            format!("{row:?}")
        });
        ControlFlow::Continue(())
    });
    view.scan(Table::RunEvents, &[], None, &mut |row_key, _| {
        let index = key::u64_at(row_key, 8).unwrap_or_default();
        let oldest = keys_first(view);
        let there = view.get(Table::Events, &key::event(index)).is_some();
        let collected = oldest.is_none_or(|oldest| index < oldest);
        findings.expect(there || collected, "an event of a run is an event", || format!("log index {index}"));
        ControlFlow::Continue(())
    });
}

fn keys_first(view: &dyn ReadStore) -> Option<u64> {
    crate::row::first(view, Table::Events, &[], None).and_then(|(row_key, _)| key::u64_at(&row_key, 0))
}

/// Of each row its end, and its key: what the index must hold.
fn ends(
    view: &dyn ReadStore,
    table: Table,
    expires_ms: impl Fn(&[u8], &crate::Value) -> u64,
) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    view.scan(table, &[], None, &mut |row_key, value| {
        let mut entry = expires_ms(row_key, value).to_be_bytes().to_vec();
        entry.extend_from_slice(row_key);
        found.insert(entry);
        ControlFlow::Continue(())
    });
    found
}

fn keys(view: &dyn ReadStore, table: Table) -> BTreeSet<Vec<u8>> {
    let mut found = BTreeSet::new();
    view.scan(table, &[], None, &mut |row_key, _| {
        found.insert(row_key.to_vec());
        ControlFlow::Continue(())
    });
    found
}
