//! Goes on with work that one entry had to leave unfinished.

use clawhive_proto::Command;
use clawhive_proto::command::Kind;
use clawhive_statemachine::Touched;
use clawhive_statemachine::plan::advance;

use super::{Leadership, Over, over, pace};

pub(super) async fn run(leadership: Leadership) -> Over {
    let ctx = &leadership.ctx;
    let mut feed = ctx.replica.feed();
    loop {
        feed.look();
        let Some(command) = advance::plan(&ctx.replica.view()) else {
            match feed.touched(Touched::BACKLOG).await {
                Ok(_) => continue,
                Err(closed) => return closed.into(),
            }
        };
        match ctx.propose_leading(vec![Command { kind: Some(Kind::Advance(command)) }]).await.map_err(over) {
            Ok(_) => {}
            Err(Err(over)) => return over,
            Err(Ok(error)) => {
                tracing::warn!(%error, "an advance is not answered");
                pace::breathe().await;
            }
        }
    }
}
