//! Writing a snapshot.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clawhive_proto::prost::Message;
use sha2::Digest;

use super::sums::Hashing;
use super::{END, FORMAT, Header, MAGIC};
use crate::background::Paced;
use crate::codec::WireLogId;
use crate::state::DurableState;

/// Dumps a durable state to `path`, synced. Writes go on meanwhile; the pages they free come back when this is done.
pub(crate) fn write(path: &Path, cluster_id: &[u8; 16], state: &DurableState) -> io::Result<()> {
    let file = BufWriter::with_capacity(1 << 18, Paced::new(File::create(path)?));
    let mut out = Hashing::new(file);
    let header = Header {
        format: FORMAT,
        cluster_id: cluster_id.to_vec(),
        last_log_id: state.facts.applied.as_ref().map(WireLogId::from),
        membership: Some((&state.facts.membership).into()),
        digest: state.facts.digest.map_or_else(Vec::new, |digest| digest.bytes().to_vec()),
        sums: true,
    }
    .encode_to_vec();
    out.write_all(MAGIC)?;
    out.write_all(&(header.len() as u32).to_le_bytes())?;
    out.write_all(&crc32fast::hash(&header).to_le_bytes())?;
    out.write_all(&header)?;
    let mut rows = 0u64;
    let mut range = state.rows.all();
    while let Some((place, value)) = range.as_mut().and_then(|range| range.next_row()) {
        out.write_all(&(place.len() as u32).to_le_bytes())?;
        out.write_all(&(value.len() as u32).to_le_bytes())?;
        out.write_all(&place)?;
        out.write_all(&value)?;
        rows += 1;
    }
    // A failed read ends the walk early: the dump must not look complete.
    state.rows.check()?;
    out.write_all(&END.to_le_bytes())?;
    out.write_all(&rows.to_le_bytes())?;
    let table = out.table();
    let Hashing { mut inner, hash, .. } = out;
    inner.write_all(&hash.finalize())?;
    inner.write_all(&table)?;
    inner.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
    Ok(())
}
