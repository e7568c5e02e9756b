//! The yardstick: puts and linearizable gets of an etcd that the caller started. Only the few fields of etcd's v3 API
//! that the load needs (`api/etcdserverpb/rpc.proto` of etcd). Nothing of clawhive uses this.

use clawhive_proto::prost;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct Header {
    #[prost(uint64, tag = "2")]
    member_id: u64,
}

/// Of Put; the fields that follow are not needed.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct PutAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct RangeAnswer {
    #[prost(int64, tag = "4")]
    count: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct StatusRequest {}

#[derive(Clone, PartialEq, prost::Message)]
#[prost(prost_path = "prost")]
struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    header: Option<Header>,
    #[prost(uint64, tag = "4")]
    leader: u64,
}

/// Connections to one member.
#[derive(Clone)]
pub struct Etcd {
    channel: Channel,
}

impl Etcd {
    /// Over a connected channel.
    pub fn new(channel: Channel) -> Etcd {
        Etcd { channel }
    }

    async fn unary<Q, A>(&self, path: &'static str, request: Q) -> Result<A, tonic::Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let answer = grpc.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await?;
        Ok(answer.into_inner())
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// What etcd answers.
    pub async fn put(&self, key: Vec<u8>, value: Vec<u8>) -> Result<(), tonic::Status> {
        self.unary::<_, PutAnswer>("/etcdserverpb.KV/Put", PutRequest { key, value }).await.map(drop)
    }

    /// A linearizable get; says whether the key was there.
    ///
    /// # Errors
    /// What etcd answers.
    pub async fn get(&self, key: Vec<u8>) -> Result<bool, tonic::Status> {
        let answer: RangeAnswer = self.unary("/etcdserverpb.KV/Range", RangeRequest { key }).await?;
        Ok(answer.count > 0)
    }

    /// True when the member behind this channel leads.
    ///
    /// # Errors
    /// What etcd answers.
    pub async fn leads(&self) -> Result<bool, tonic::Status> {
        let answer: StatusAnswer = self.unary("/etcdserverpb.Maintenance/Status", StatusRequest {}).await?;
        Ok(answer.header.is_some_and(|header| header.member_id == answer.leader))
    }
}
