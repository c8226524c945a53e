//! Messages of etcd's API, version 3: those that a coordinator needs, with the fields that it uses. They are written by
//! hand, so that no build needs a compiler for protobuf. The numbers are those of etcd's `rpc.proto` and `kv.proto`.
//! An unknown field is skipped, and a field that is left out has its default.

use prost::Message;

/// The number of the cluster's last change.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

/// A key and what it has.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

/// Keys from `key` to the one before `range_end`; that key alone if the latter is empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// 0: none.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    /// 0: none.
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

/// One of these.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(message, optional, tag = "2")]
    pub(crate) put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub(crate) delete_range: Option<DeleteRangeRequest>,
}

/// A condition on a key: here, that it was changed last with this revision (0: that there is no such key).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    /// [`Compare::EQUAL`].
    #[prost(int32, tag = "1")]
    pub(crate) result: i32,
    /// [`Compare::MOD`].
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, optional, tag = "6")]
    pub(crate) mod_revision: Option<i64>,
}

impl Compare {
    pub(crate) const EQUAL: i32 = 0;
    pub(crate) const MOD: i32 = 2;
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
}

/// A lease of so many seconds, with a number that etcd chooses.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    /// 0: the lease has ended.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// etcd has forgotten the revision, or ends the watch.
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// What they are does not matter.
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Event {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as protoc 3.21 writes them for etcd's own files: `protoc --encode=etcdserverpb.TxnRequest`.
    #[test]
    fn golden_bytes_of_a_transaction() {
        let key = b"a".to_vec();
        let compare = |mod_revision| Compare {
            result: Compare::EQUAL,
            target: Compare::MOD,
            key: key.clone(),
            mod_revision: Some(mod_revision),
        };
        let put = PutRequest { key: key.clone(), value: b"v".to_vec(), lease: 300 };
        let success = vec![
            RequestOp { put: Some(put), delete_range: None },
            RequestOp { put: None, delete_range: Some(DeleteRangeRequest { key: key.clone() }) },
        ];
        let txn = TxnRequest { compare: vec![compare(0), compare(5)], success };
        let want: &[u8] = &[
            10, 7, 16, 2, 26, 1, 97, 48, 0, // the first condition
            10, 7, 16, 2, 26, 1, 97, 48, 5, // the second
            18, 11, 18, 9, 10, 1, 97, 18, 1, 118, 24, 172, 2, // put
            18, 5, 26, 3, 10, 1, 97, // delete
        ];
        assert_eq!(txn.encode_to_vec(), want);
    }

    /// Unknown fields are skipped: those of a real answer.
    #[test]
    fn golden_bytes_of_an_answer() {
        let bytes: &[u8] = &[
            10, 8, 8, 1, 16, 2, 24, 7, 32, 3, // header: cluster, member, revision 7, term
            18, 14, 10, 1, 97, 16, 4, 24, 6, 32, 2, 42, 1, 118, 48, 9, // the key a
            24, 1, // more
            32, 5, // count
        ];
        let answer = RangeResponse::decode(bytes).unwrap();
        let known = KeyValue { key: b"a".to_vec(), mod_revision: 6, value: b"v".to_vec() };
        let header = Some(Header { revision: 7 });
        assert_eq!(answer, RangeResponse { header, kvs: vec![known], more: true });
        let watched: &[u8] = &[10, 2, 24, 9, 24, 1, 90, 2, 8, 1];
        let answer = WatchResponse::decode(watched).unwrap();
        assert_eq!((answer.header.unwrap().revision, answer.canceled, answer.events.len()), (9, false, 1));
    }
}
