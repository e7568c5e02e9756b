//! Stores a value under a key.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{Done, KeyRow, PutKey};

use crate::command::check_name;
use crate::command::key_txn::key_version;
use crate::halt::Step;
use crate::work::Work;
use crate::{Table, key};

pub(crate) fn apply(work: &mut Work<'_>, command: &PutKey) -> Step<Answer> {
    check_name("the namespace", &command.namespace)?;
    let key = key::key(&command.namespace, &command.key);
    let before = work.get::<KeyRow>(Table::Keys, &key)?;
    let created_at = before.as_ref().map_or(work.log_index, |row| row.created_at);
    // Rows of the first release have no version.
    let version = if work.level() >= 2 { before.as_ref().map_or(0, key_version) + 1 } else { 0 };
    let row = KeyRow { value: command.value.clone(), created_at, modified_at: work.log_index, version };
    work.put(Table::Keys, &key, &row);
    Ok(Answer::Done(Done {}))
}
