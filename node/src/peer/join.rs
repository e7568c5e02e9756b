//! Asking for admission: the one talk with peers before a node has an identity.

use std::time::Duration;

use clawhive_proto::prost::Message;
use clawhive_proto::{AddNode, Frame, FrameKind, JoinReply, Welcome, join_reply};
use clawhive_raft::TransportError;

use super::Identity;
use super::links::{client, failure};

/// How long one peer may take: its answer waits for a commit, maybe through an election.
const ASK_TIMEOUT: Duration = Duration::from_secs(6);

/// Nobody let this node in.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JoinError {
    /// Asking again may help. What each peer said.
    #[error("no peer answered the request to join: {}", .0.join("; "))]
    NotNow(Vec<String>),
    /// The cluster refuses it for good.
    #[error("{0}")]
    Refused(String),
}

/// How one peer answered.
enum Answer {
    Welcome(Welcome),
    NotNow(String),
    Refused(String),
}

/// Asks the peers one after the other until one says welcome. Repeating it with the same join id is harmless.
pub async fn join(peers: &[String], request: &AddNode) -> Result<Welcome, JoinError> {
    let mut reasons = Vec::new();
    for addr in peers {
        match ask(addr, request).await {
            Answer::Welcome(welcome) => return Ok(welcome),
            Answer::Refused(reason) => return Err(JoinError::Refused(reason)),
            Answer::NotNow(reason) => reasons.push(format!("{addr}: {reason}")),
        }
    }
    Err(JoinError::NotNow(reasons))
}

async fn ask(addr: &str, request: &AddNode) -> Answer {
    let frame =
        Frame { kind: FrameKind::Join.into(), payload: request.encode_to_vec().into(), ..Frame::default() };
    let answer = match call(addr, frame).await {
        Ok(answer) => answer,
        Err(error) => return Answer::NotNow(error.to_string()),
    };
    match JoinReply::decode(answer.payload).map(|reply| reply.result) {
        Err(error) => Answer::NotNow(error.to_string()),
        Ok(Some(join_reply::Result::Welcome(welcome))) => Answer::Welcome(welcome),
        Ok(Some(join_reply::Result::Refused(rejection))) => Answer::Refused(rejection.message),
        Ok(Some(join_reply::Result::Error(error))) => Answer::NotNow(error.message),
        Ok(Some(join_reply::Result::NotLeader(_)) | None) => Answer::NotNow("it does not lead".to_owned()),
    }
}

/// Why this node is none of those that it was told to join.
pub(crate) enum Stranger {
    /// They are another cluster; names it.
    OtherCluster(String),
    /// It was removed.
    Removed(String),
}

/// Finds out whether this node is a stranger to these peers. Peers that don't answer tell nothing.
pub(crate) async fn look_around(peers: &[String], me: &Identity) -> Option<Stranger> {
    for addr in peers {
        let frame = me.frame(0, FrameKind::Status, bytes::Bytes::new());
        match call(addr, frame).await {
            Ok(answer) if answer.kind() == FrameKind::Status => return None,
            Err(TransportError::Refused(reason)) => {
                return Some(Stranger::OtherCluster(format!("{addr}: {reason}")));
            }
            Err(TransportError::Removed(text)) => return Some(Stranger::Removed(text)),
            Ok(_) | Err(_) => {}
        }
    }
    None
}

async fn call(addr: &str, frame: Frame) -> Result<Frame, TransportError> {
    let mut client = client(addr).map_err(TransportError::Unreachable)?;
    let answer = tokio::time::timeout(ASK_TIMEOUT, client.call(frame)).await;
    let answer = answer.map_err(|_| TransportError::Lost("no answer in time".to_owned()))?;
    Ok(answer.map_err(failure)?.into_inner())
}
