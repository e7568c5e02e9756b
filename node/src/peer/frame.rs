//! Frames: filling in who speaks to whom, and refusing what is meant for others.

use bytes::Bytes;
use clawhive_proto::{Frame, FrameKind};
use tonic::Status;

use crate::identity::format_id;

/// Who this node is among its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: [u8; 16],
    /// This node.
    pub node: u64,
}

impl Identity {
    /// A frame from this node.
    pub(super) fn frame(&self, to: u64, kind: FrameKind, payload: Bytes) -> Frame {
        Frame { cluster_id: self.cluster_id.to_vec(), from: self.node, to, kind: kind.into(), payload }
    }

    /// Refuses a frame of another cluster or for another node. A join, a status and a hello may be for whoever listens
    /// here.
    pub(super) fn check(&self, frame: &Frame) -> Result<(), Status> {
        let kind = frame.kind();
        let joining = kind == FrameKind::Join && frame.cluster_id.is_empty();
        if !joining {
            self.check_cluster(&frame.cluster_id)?;
        }
        let to_anyone =
            matches!(kind, FrameKind::Join | FrameKind::Status | FrameKind::Hello) && frame.to == 0;
        if frame.to != self.node && !to_anyone {
            return Err(Status::failed_precondition(format!(
                "this is node {}, the frame is for node {}",
                self.node, frame.to
            )));
        }
        if frame.from == self.node {
            return Err(Status::failed_precondition(format!(
                "the frame says that it is from node {}, which is this one: two nodes with one identity",
                self.node
            )));
        }
        Ok(())
    }

    /// Refuses another cluster.
    pub(super) fn check_cluster(&self, cluster_id: &[u8]) -> Result<(), Status> {
        if cluster_id == self.cluster_id {
            return Ok(());
        }
        Err(Status::failed_precondition(format!(
            "node {} belongs to cluster {}, the sender to cluster {}",
            self.node,
            format_id(&self.cluster_id),
            format_id(cluster_id)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Identity = Identity { cluster_id: [1; 16], node: 1 };

    fn refusal(cluster: u8, from: u64, to: u64, kind: FrameKind) -> Option<String> {
        let frame = Identity { cluster_id: [cluster; 16], node: from }.frame(to, kind, Bytes::new());
        ME.check(&frame).err().map(|status| status.message().to_owned())
    }

    #[test]
    fn only_frames_for_this_node_of_this_cluster_pass() {
        assert_eq!(refusal(1, 2, 1, FrameKind::Append), None);
        assert_eq!(refusal(1, 2, 0, FrameKind::Status), None);
        let text = refusal(2, 2, 1, FrameKind::Vote).unwrap();
        assert!(text.contains(&"01".repeat(16)) && text.contains(&"02".repeat(16)), "{text}");
        assert_eq!(refusal(1, 2, 3, FrameKind::Vote).unwrap(), "this is node 1, the frame is for node 3");
        assert!(refusal(1, 2, 0, FrameKind::Vote).is_some());
        assert!(refusal(1, 1, 1, FrameKind::Vote).unwrap().contains("two nodes with one identity"));
    }

    #[test]
    fn a_join_needs_no_cluster_but_not_another_one() {
        let frame =
            |cluster_id: Vec<u8>| Frame { cluster_id, kind: FrameKind::Join.into(), ..Frame::default() };
        assert!(ME.check(&frame(Vec::new())).is_ok());
        assert!(ME.check(&frame(vec![2; 16])).is_err());
    }
}
