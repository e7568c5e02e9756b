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
#[error("no peer answered the request to join: {}", .0.join("; "))]
pub struct JoinError(pub Vec<String>);

/// Asks the peers one after the other until one says welcome. Repeating it with the same join id is harmless.
pub async fn join(peers: &[String], request: &AddNode) -> Result<Welcome, JoinError> {
    let mut reasons = Vec::new();
    for addr in peers {
        match ask(addr, request).await {
            Ok(welcome) => return Ok(welcome),
            Err(reason) => reasons.push(format!("{addr}: {reason}")),
        }
    }
    Err(JoinError(reasons))
}

async fn ask(addr: &str, request: &AddNode) -> Result<Welcome, String> {
    let frame =
        Frame { kind: FrameKind::Join.into(), payload: request.encode_to_vec().into(), ..Frame::default() };
    let answer = call(addr, frame).await.map_err(|error| error.to_string())?;
    let reply = JoinReply::decode(answer.payload).map_err(|error| error.to_string())?;
    match reply.result {
        Some(join_reply::Result::Welcome(welcome)) => Ok(welcome),
        Some(join_reply::Result::Error(error)) => Err(error.message),
        Some(join_reply::Result::NotLeader(_)) | None => Err("it does not lead".to_owned()),
    }
}

/// Finds out whether any of these peers belongs to another cluster than this node. Peers that don't answer tell nothing.
pub(crate) async fn other_cluster(peers: &[String], me: &Identity) -> Option<String> {
    for addr in peers {
        let frame = me.frame(0, FrameKind::Status, bytes::Bytes::new());
        match call(addr, frame).await {
            Ok(answer) if answer.kind() == FrameKind::Status => return None,
            Err(TransportError::Refused(reason)) => return Some(format!("{addr}: {reason}")),
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
