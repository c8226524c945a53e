//! Messages of etcd's API, version 3: those that a coordinator needs, with the fields that it uses. They are written by
//! hand, so that no build needs a compiler for protobuf. The numbers are those of etcd's `rpc.proto` and `kv.proto`.
//! An unknown field is skipped, and a field that is left out has its default.

use prost::Message;

/// The number of the cluster's last change.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// A key and what it has.
#[derive(Clone, PartialEq, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(super) value: Vec<u8>,
}

/// Keys from `key` to the one before `range_end`; that key alone if the latter is empty.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    /// 0: none.
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
    /// 0: none.
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
}

/// One of these.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequestOp {
    #[prost(message, optional, tag = "2")]
    pub(super) put: Option<PutRequest>,
    #[prost(message, optional, tag = "3")]
    pub(super) delete_range: Option<DeleteRangeRequest>,
}

/// A condition on a key: here, that it was changed last with this revision (0: that there is no such key).
#[derive(Clone, PartialEq, Message)]
pub(super) struct Compare {
    /// [`Compare::EQUAL`].
    #[prost(int32, tag = "1")]
    pub(super) result: i32,
    /// [`Compare::MOD`].
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(super) key: Vec<u8>,
    #[prost(int64, optional, tag = "6")]
    pub(super) mod_revision: Option<i64>,
}

impl Compare {
    pub(super) const EQUAL: i32 = 0;
    pub(super) const MOD: i32 = 2;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
}

/// A lease of so many seconds, with a number that etcd chooses.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(string, tag = "4")]
    pub(super) error: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(super) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LeaseKeepAliveResponse {
    /// 0: the lease has ended.
    #[prost(int64, tag = "3")]
    pub(super) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(super) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<Header>,
    /// etcd has forgotten the revision, or ends the watch.
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    /// What they are does not matter.
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {}

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
