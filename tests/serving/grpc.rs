//! The Open Inference Protocol over gRPC. Triton's client is tested in scripts/test_ecosystem.sh; this one is tonic's,
//! with messages of its own.

use crate::client::{objects, predicted, served, table, trained};
use prost::Message;
use tonic::codec::CompressionEncoding;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct Name {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Flag {
    #[prost(bool, tag = "1")]
    is_set: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Lists {
    #[prost(float, repeated, tag = "6")]
    floats: Vec<f32>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    texts: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Tensor {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    datatype: String,
    #[prost(int64, repeated, tag = "3")]
    shape: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    contents: Option<Lists>,
}

#[derive(Clone, PartialEq, Message)]
struct Infer {
    #[prost(string, tag = "1")]
    model: String,
    #[prost(string, tag = "2")]
    version: String,
    #[prost(string, tag = "3")]
    id: String,
    #[prost(message, repeated, tag = "5")]
    tensors: Vec<Tensor>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    raw_outputs: Vec<Vec<u8>>,
    #[prost(bytes = "vec", repeated, tag = "7")]
    raw_inputs: Vec<Vec<u8>>,
}

/// A client on a runtime of its own.
struct Client {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
}

impl Client {
    fn open(addr: &str) -> Client {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let channel = Channel::from_shared(format!("http://{addr}")).unwrap();
        let channel = runtime.block_on(channel.connect()).unwrap();
        Client { runtime, channel }
    }

    fn call<Q, A>(&self, method: &str, message: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let path = format!("/inference.GRPCInferenceService/{method}").try_into().unwrap();
        let mut client =
            tonic::client::Grpc::new(self.channel.clone()).send_compressed(CompressionEncoding::Gzip);
        self.runtime.block_on(async {
            client.ready().await.unwrap();
            let answer = client.unary(Request::new(message), path, ProstCodec::<Q, A>::default()).await;
            answer.map(|answer| answer.into_inner())
        })
    }
}

fn tensor(name: &str, datatype: &str, examples: i64, contents: Option<Lists>) -> Tensor {
    Tensor { name: name.into(), datatype: datatype.into(), shape: vec![examples], contents }
}

/// Inputs in lists and as bytes: the answer is what `gannet predict` prints.
#[test]
fn calls_answer_what_predict_prints() {
    let folder = tempfile::tempdir().unwrap();
    let (model, data) = trained(folder.path(), "a.csv", &table(300, 50), "--model fm");
    let (served, expected) = (served(&format!("--model {model}")), predicted(&model, &data));
    let client = Client::open(&served.addr);
    let rows = objects(&table(300, 50));
    let texts = |name: &str| rows.iter().map(|row| row[name].as_str().unwrap().as_bytes().to_vec()).collect();
    let list = |name: &str| Some(Lists { texts: texts(name), floats: Vec::new() });
    let floats: Vec<f32> = rows.iter().map(|row| row["age"].as_f64().unwrap() as f32).collect();
    let lists = vec![
        tensor("city", "BYTES", 300, list("city")),
        tensor("age", "FP32", 300, Some(Lists { floats: floats.clone(), texts: Vec::new() })),
        tensor("plan", "BYTES", 300, list("plan")),
    ];
    let raw = |name: &str| -> Vec<u8> {
        let each = |text: Vec<u8>| [(text.len() as u32).to_le_bytes().to_vec(), text].concat();
        let texts: Vec<Vec<u8>> = texts(name);
        texts.into_iter().flat_map(each).collect()
    };
    let raw_inputs = vec![raw("city"), floats.iter().flat_map(|x| x.to_le_bytes()).collect(), raw("plan")];
    let bare = lists.iter().map(|of| Tensor { contents: None, ..of.clone() }).collect();
    let ask = |tensors, raw_inputs| Infer {
        model: "default".into(),
        id: "9".into(),
        tensors,
        raw_inputs,
        ..Infer::default()
    };
    for request in [ask(lists, Vec::new()), ask(bare, raw_inputs)] {
        let answer: Infer = client.call("ModelInfer", request).unwrap();
        assert_eq!((&*answer.id, &answer.tensors[0].shape), ("9", &vec![300]));
        let floats = answer.raw_outputs[0].chunks_exact(4).map(|x| f32::from_le_bytes(x.try_into().unwrap()));
        assert_eq!(floats.map(|x| format!("{x:.6}\n")).collect::<String>(), expected);
    }
}

#[test]
fn other_calls_and_errors_are_those_of_the_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let (model, _) = trained(folder.path(), "a.csv", &table(100, 51), "");
    let served = served(&format!("--model clicks={model} --request-bytes 10KB"));
    let client = Client::open(&served.addr);
    let name = |name: &str, version: &str| Name { name: name.into(), version: version.into() };
    for call in ["ServerLive", "ServerReady"] {
        assert_eq!(
            client.call::<Name, Flag>(call, Name::default()).unwrap(),
            Flag { is_set: true },
            "{call}"
        );
    }
    assert_eq!(client.call::<Name, Flag>("ModelReady", name("clicks", "")).unwrap(), Flag { is_set: true });
    let about: Infer = client.call("ModelMetadata", name("clicks", "")).unwrap();
    let version = about.version.clone();
    assert_eq!(
        client.call::<Name, Flag>("ModelReady", name("clicks", &version)).unwrap(),
        Flag { is_set: true }
    );
    for of in [name("none", ""), name("clicks", "1")] {
        assert_eq!(client.call::<Name, Flag>("ModelReady", of).unwrap(), Flag { is_set: false });
    }
    let refused = |call: &str, of: Name| client.call::<Name, Flag>(call, of).unwrap_err();
    for (error, code, part) in [
        (refused("ModelMetadata", name("none", "")), Code::NotFound, "\"none\""),
        (refused("ModelMetadata", name("clicks", "1")), Code::NotFound, "no version \"1\""),
        (refused("ModelInfer", name("clicks", "")), Code::InvalidArgument, "inputs are missing"),
        (refused("Repeat", name("", "")), Code::Unimplemented, "no call Repeat"),
    ] {
        assert!(error.code() == code && error.message().contains(part), "{error:?}");
    }
    let mut random = 1u64;
    let text = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    });
    let large = vec![text.take(100_000).collect::<Vec<u8>>()];
    let request = Infer { model: "clicks".into(), raw_inputs: large, ..Infer::default() };
    let error = client.call::<Infer, Infer>("ModelInfer", request).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error:?}");
}
