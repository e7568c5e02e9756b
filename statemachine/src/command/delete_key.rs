//! Removes a key; one that is not there is fine.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{DeleteKey, Done};

use crate::command::check_name;
use crate::halt::Step;
use crate::work::Work;
use crate::{Table, key};

pub(crate) fn apply(work: &mut Work<'_>, command: &DeleteKey) -> Step<Answer> {
    check_name("the namespace", &command.namespace)?;
    work.delete(Table::Keys, &key::key(&command.namespace, &command.key));
    Ok(Answer::Done(Done {}))
}
