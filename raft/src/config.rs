//! openraft's settings. Its defaults are made for small logs and quiet tests; each line here has a reason.

use openraft::{Config, SnapshotPolicy};

use crate::codec;
use crate::error::OpenError;
use crate::options::Options;

/// Entries in one append to a follower, at most; frames are bounded in bytes as well.
const MAX_PAYLOAD_ENTRIES: u64 = 1_024;
/// Entries purged from the log at once, at least: a purge is a record in the log, too.
const PURGE_BATCH: u64 = 1_024;

pub(crate) fn raft_config(options: &Options) -> Result<Config, OpenError> {
    let config = Config {
        cluster_name: codec::hex(&options.cluster_id),
        heartbeat_interval: options.heartbeat_ms,
        election_timeout_min: options.election_min_ms,
        election_timeout_max: options.election_max_ms,
        max_payload_entries: MAX_PAYLOAD_ENTRIES,
        // A follower further behind than the log is kept gets a snapshot, nobody else.
        replication_lag_threshold: options.snapshot_entries,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(options.snapshot_entries),
        max_in_snapshot_log_to_keep: options.keep_entries,
        purge_batch_size: PURGE_BATCH.min(options.keep_entries.max(1)),
        // A leader without a quorum falls silent, so that who can lead is not kept from it.
        quorum_loss_probe_interval: Some(2 * options.election_max_ms),
        // A node that can't win does not drive up the term.
        enable_pre_vote: Some(true),
        // A restarted leader is elected again before it answers anything.
        enable_leader_restore: Some(false),
        allow_log_reversion: Some(false),
        // A peer that comes back is found within half a second.
        backoff: "50ms 100ms 200ms ...500ms".to_owned(),
        ..Config::default()
    };
    config.validate().map_err(|error| OpenError::Options(error.to_string()))
}
