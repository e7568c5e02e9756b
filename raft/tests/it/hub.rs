//! A network of channels between replicas in this process, whose links can be cut one by one.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use clawhive_proto::FrameKind;
use clawhive_raft::{Peer, Replica, Transport, TransportError};
use futures::StreamExt;
use futures::stream::BoxStream;

#[derive(Default)]
pub struct Hub {
    replicas: Mutex<HashMap<u64, Replica>>,
    cut: Mutex<HashSet<(u64, u64)>>,
    /// Snapshots that were carried.
    snapshots: Mutex<u64>,
}

impl Hub {
    pub fn plug(&self, id: u64, replica: Replica) {
        self.replicas.lock().unwrap().insert(id, replica);
    }

    pub fn unplug(&self, id: u64) {
        self.replicas.lock().unwrap().remove(&id);
    }

    /// Nothing passes between the two any more, in either direction.
    pub fn cut(&self, a: u64, b: u64) {
        self.cut.lock().unwrap().extend([(a, b), (b, a)]);
    }

    pub fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }

    pub fn snapshots(&self) -> u64 {
        *self.snapshots.lock().unwrap()
    }

    fn open(&self, from: u64, to: u64) -> bool {
        !self.cut.lock().unwrap().contains(&(from, to))
    }

    fn find(&self, from: u64, to: u64) -> Result<Replica, TransportError> {
        let there = self.replicas.lock().unwrap().get(&to).cloned();
        there.filter(|_| self.open(from, to)).ok_or_else(|| TransportError::Unreachable(format!("node {to}")))
    }

    fn still(&self, from: u64, to: u64) -> Result<(), TransportError> {
        match self.find(from, to) {
            Ok(_) => Ok(()),
            Err(_) => Err(TransportError::Lost("cut".to_owned())),
        }
    }
}

pub struct Port {
    pub hub: Arc<Hub>,
    pub from: u64,
}

#[async_trait::async_trait]
impl Transport for Port {
    async fn call(
        &self,
        to: &Peer,
        kind: FrameKind,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, TransportError> {
        let replica = self.hub.find(self.from, to.id)?;
        let answer = match tokio::time::timeout(timeout, replica.handle_call(kind, payload)).await {
            Err(_) => return Err(TransportError::Lost("timeout".to_owned())),
            Ok(Err(error)) => return Err(TransportError::Refused(error.to_string())),
            Ok(Ok(answer)) => answer,
        };
        self.hub.still(self.from, to.id)?;
        Ok(answer)
    }

    async fn open_append(
        &self,
        to: &Peer,
        frames: BoxStream<'static, Bytes>,
        _timeout: Duration,
    ) -> Result<BoxStream<'static, Result<Bytes, TransportError>>, TransportError> {
        let replica = self.hub.find(self.from, to.id)?;
        let (hub, from, to) = (self.hub.clone(), self.from, to.id);
        let outward = hub.clone();
        let frames = frames.take_while(move |_| std::future::ready(outward.find(from, to).is_ok()));
        let replies = replica.handle_append(Box::pin(frames)).map(move |reply| {
            hub.still(from, to)?;
            reply.map_err(|error| TransportError::Lost(error.to_string()))
        });
        Ok(Box::pin(replies))
    }

    async fn send_snapshot(
        &self,
        to: &Peer,
        chunks: BoxStream<'static, io::Result<Bytes>>,
    ) -> Result<Bytes, TransportError> {
        let replica = self.hub.find(self.from, to.id)?;
        let (hub, from, target) = (self.hub.clone(), self.from, to.id);
        let chunks = chunks.map(move |chunk| {
            hub.still(from, target).map_err(io::Error::other)?;
            chunk
        });
        let answer = replica.handle_snapshot(Box::pin(chunks)).await;
        let answer = answer.map_err(|error| TransportError::Refused(error.to_string()))?;
        *self.hub.snapshots.lock().unwrap() += 1;
        Ok(answer)
    }
}
