//! Lets a restored cluster start tasks and fire timers again.

use clawhive_proto::outcome::Kind as Answer;
use clawhive_proto::{ClusterRow, Done, Event, EventKind};

use crate::halt::Step;
use crate::work::Work;
use crate::{Table, Touched, key};

pub(crate) fn apply(work: &mut Work<'_>) -> Step<Answer> {
    let cluster: Option<ClusterRow> = work.get(Table::Cluster, &key::CLUSTER)?;
    if let Some(mut cluster) = cluster.filter(|row| row.suspended) {
        cluster.suspended = false;
        work.put(Table::Cluster, &key::CLUSTER, &cluster);
        // What was held back: ready tasks, due timers, schedules.
        work.touched.add(Touched::ALL);
        work.event(Event { kind: EventKind::ClusterResumed as i32, ..Event::default() });
    }
    Ok(Answer::Done(Done {}))
}
