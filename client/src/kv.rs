//! Keys and values: read, written one by one or several at once, with versions to compare and fencing tokens.

use clawhive_proto::key_compare::Is;
use clawhive_proto::key_op::Op;
use clawhive_proto::{
    GetKeyRequest, GetKeyResponse, KeyCompare, KeyFence, KeyName, KeyOp, KeyPut, KeyResult, KeyTxn,
    ListKeysRequest, ListKeysResponse, TxnKeysRequest,
};

use crate::call::Effect;
use crate::error::Error;
use crate::{Client, request_id};

impl Client {
    /// The keys of the namespace `default`; of another one with [`Kv::namespace`].
    ///
    /// ```no_run
    /// # use clawhive_client::{Client, Error, PutOptions, Txn};
    /// # async fn example(client: Client) -> Result<(), Error> {
    /// let kv = client.kv();
    /// let first = kv.put("config/limit", "10", PutOptions::new().if_absent()).await?;
    /// kv.put("config/limit", "12", PutOptions::new().if_version(first.version)).await?;
    /// let moved = kv.txn(Txn::new().if_present("a").if_absent("b").delete("a").put("b", "1")).await?;
    /// assert!(moved.succeeded);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kv(&self) -> Kv {
        Kv { client: self.clone(), namespace: String::new() }
    }
}

/// The keys of a namespace. Every write carries one request id through its retries: it happens once.
#[derive(Debug, Clone)]
pub struct Kv {
    client: Client,
    namespace: String,
}

/// On which conditions a key is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PutOptions {
    is: Option<Is>,
    fence: Option<KeyFence>,
}

impl PutOptions {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Only if there is no such key.
    pub fn if_absent(mut self) -> Self {
        self.is = Some(Is::Version(0));
        self
    }

    /// Only if the key was written so many times; 0: if there is no such key.
    pub fn if_version(mut self, version: u64) -> Self {
        self.is = Some(Is::Version(version));
        self
    }

    /// Only if the key has this value.
    pub fn if_value(mut self, value: impl Into<Vec<u8>>) -> Self {
        self.is = Some(Is::Value(value.into().into()));
        self
    }

    /// Not if a newer fencing token has written the key.
    pub fn fence(mut self, token: u64) -> Self {
        self.fence.get_or_insert_default().token = token;
        self
    }

    /// Besides, only while the token given with [`PutOptions::fence`] is the current one of this lock.
    pub fn lock(mut self, name: impl Into<String>) -> Self {
        self.fence.get_or_insert_default().lock = name.into();
        self
    }
}

/// Comparisons, and what to do when all of them hold and when not; done whole or not at all, in one entry of the log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Txn {
    txn: KeyTxn,
    otherwise: bool,
}

impl Txn {
    /// No comparisons, which hold, and nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    fn compare(mut self, key: impl Into<String>, is: Is) -> Self {
        self.txn.compares.push(KeyCompare { key: key.into(), is: Some(is) });
        self
    }

    fn op(mut self, op: Op) -> Self {
        let ops = if self.otherwise { &mut self.txn.otherwise } else { &mut self.txn.then };
        ops.push(KeyOp { op: Some(op) });
        self
    }

    /// The key was written so many times; 0: there is none.
    pub fn if_version(self, key: impl Into<String>, version: u64) -> Self {
        self.compare(key, Is::Version(version))
    }

    /// The key has this value.
    pub fn if_value(self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.compare(key, Is::Value(value.into().into()))
    }

    /// The key was last written at this log index; 0: there is none.
    pub fn if_modified_at(self, key: impl Into<String>, log_index: u64) -> Self {
        self.compare(key, Is::ModifiedAt(log_index))
    }

    /// There is such a key.
    pub fn if_present(self, key: impl Into<String>) -> Self {
        self.compare(key, Is::Present(true))
    }

    /// There is no such key.
    pub fn if_absent(self, key: impl Into<String>) -> Self {
        self.compare(key, Is::Present(false))
    }

    /// Sets a key.
    pub fn put(self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.op(Op::Put(KeyPut { key: key.into(), value: value.into().into() }))
    }

    /// Removes a key; none there is fine.
    pub fn delete(self, key: impl Into<String>) -> Self {
        self.op(Op::Delete(KeyName { key: key.into() }))
    }

    /// Reads a key, as the operations before it left it.
    pub fn get(self, key: impl Into<String>) -> Self {
        self.op(Op::Get(KeyName { key: key.into() }))
    }

    /// What follows is done instead when a comparison does not hold.
    pub fn otherwise(mut self) -> Self {
        self.otherwise = true;
        self
    }

    /// Refuses the whole where a newer fencing token has written, and when a lock is named, unless it is its current one.
    pub fn fence(mut self, token: u64, lock: Option<&str>) -> Self {
        self.txn.fence = Some(KeyFence { token, lock: lock.unwrap_or_default().to_owned() });
        self
    }
}

/// What a transaction did.
#[derive(Debug, Clone, PartialEq)]
pub struct TxnAnswer {
    /// Every comparison held.
    pub succeeded: bool,
    /// One per operation done, in order.
    pub results: Vec<KeyResult>,
    /// Its place in the log.
    pub log_index: u64,
}

impl Kv {
    /// The keys of another namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// A key; `found` is false when there is none. Linearizable.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get(&self, key: impl Into<String>) -> Result<GetKeyResponse, Error> {
        self.client.get_key(self.get_request(key.into(), false)).await
    }

    /// A key as the node asked has it, which may be behind: `freshness` says how far. Works without a quorum.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn get_stale(&self, key: impl Into<String>) -> Result<GetKeyResponse, Error> {
        self.client.get_key(self.get_request(key.into(), true)).await
    }

    fn get_request(&self, key: String, stale: bool) -> GetKeyRequest {
        GetKeyRequest { namespace: self.namespace.clone(), key, stale }
    }

    /// Sets a key; answers with its new version.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a condition does not hold, or the fencing token is not new enough.
    pub async fn put(
        &self,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
        options: PutOptions,
    ) -> Result<KeyResult, Error> {
        let (key, value) = (key.into(), value.into().into());
        self.one(key.clone(), Op::Put(KeyPut { key, value }), options).await
    }

    /// Removes a key; `found` says whether there was one.
    ///
    /// # Errors
    /// As [`Kv::put`].
    pub async fn delete(&self, key: impl Into<String>, options: PutOptions) -> Result<KeyResult, Error> {
        let key = key.into();
        self.one(key.clone(), Op::Delete(KeyName { key }), options).await
    }

    async fn one(&self, key: String, op: Op, options: PutOptions) -> Result<KeyResult, Error> {
        let wanted = options.is.clone();
        let mut txn = KeyTxn { fence: options.fence, ..KeyTxn::default() };
        txn.then.push(KeyOp { op: Some(op) });
        if let Some(is) = options.is {
            txn.compares.push(KeyCompare { key: key.clone(), is: Some(is) });
            // For the error: how it is instead. Its version will do; the value may be large.
            txn.otherwise.push(KeyOp { op: Some(Op::Get(KeyName { key: key.clone() })) });
        }
        let answer = self.send(txn).await?;
        let result = answer.results.into_iter().next().unwrap_or_default();
        if answer.succeeded { Ok(result) } else { Err(differs(&key, wanted.as_ref(), &result)) }
    }

    /// Compares and changes several keys, all or nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the fencing token is not new enough; that a comparison does not hold is no error.
    pub async fn txn(&self, txn: Txn) -> Result<TxnAnswer, Error> {
        self.send(txn.txn).await
    }

    async fn send(&self, txn: KeyTxn) -> Result<TxnAnswer, Error> {
        let txn = KeyTxn { namespace: self.namespace.clone(), ..txn };
        let message = TxnKeysRequest { request_id: request_id(), txn: Some(txn) };
        let answer = self
            .client
            .call(Effect::Write, message, |mut stub, request| async move { stub.txn_keys(request).await })
            .await?;
        let (succeeded, results, log_index) = (answer.succeeded, answer.results, answer.log_index);
        Ok(TxnAnswer { succeeded, results, log_index })
    }

    /// Keys in their order, a page at a time: go on with `next_cursor`. The namespace is this one's.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn list(&self, message: ListKeysRequest) -> Result<ListKeysResponse, Error> {
        let message = ListKeysRequest { namespace: self.namespace.clone(), ..message };
        self.client
            .call(Effect::Read, message, |mut stub, request| async move { stub.list_keys(request).await })
            .await
    }
}

fn differs(key: &str, wanted: Option<&Is>, found: &KeyResult) -> Error {
    let has = match found.found {
        true => format!("key {key:?} has version {}", found.version),
        false => format!("there is no key {key:?}"),
    };
    let instead = match wanted {
        Some(Is::Version(0) | Is::Present(false)) => ", and was to be absent".to_owned(),
        Some(Is::Version(version)) => format!(", not {version}"),
        Some(Is::Value(_)) if found.found => " and another value".to_owned(),
        _ => String::new(),
    };
    Error::Conflict { message: format!("{has}{instead}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_says_what_is_there() {
        let found = KeyResult { found: true, version: 3, ..KeyResult::default() };
        let text = |is: Is, found: &KeyResult| differs("k", Some(&is), found).to_string();
        assert_eq!(text(Is::Version(2), &found), "key \"k\" has version 3, not 2");
        assert_eq!(text(Is::Version(0), &found), "key \"k\" has version 3, and was to be absent");
        assert_eq!(text(Is::Version(2), &KeyResult::default()), "there is no key \"k\", not 2");
        assert_eq!(text(Is::Value(vec![1].into()), &found), "key \"k\" has version 3 and another value");
    }

    #[test]
    fn what_follows_otherwise_is_the_other_branch() {
        let txn = Txn::new().if_absent("a").put("a", "1").otherwise().get("a").fence(7, Some("l")).txn;
        assert_eq!((txn.compares.len(), txn.then.len(), txn.otherwise.len()), (1, 1, 1));
        assert_eq!(txn.fence, Some(KeyFence { token: 7, lock: "l".into() }));
    }
}
