//! Which features this program was built with.

use std::sync::LazyLock;

/// Each feature of the package, and whether this program has it.
const FEATURES: [(&str, bool); 6] = [
    ("cloud", cfg!(feature = "cloud")),
    ("etcd", cfg!(feature = "etcd")),
    ("kafka", cfg!(feature = "kafka")),
    ("parquet", cfg!(feature = "parquet")),
    ("rdma", cfg!(feature = "rdma")),
    ("rdma-dlopen", cfg!(feature = "rdma-dlopen")),
];

/// The features that it has.
pub fn built() -> Vec<&'static str> {
    FEATURES.iter().filter(|(_, is_built)| *is_built).map(|(name, _)| *name).collect()
}

/// The features that it has, and those that it lacks. Of the two ways to RDMA one is enough.
pub fn words() -> String {
    let has_rdma = FEATURES.iter().any(|(name, is_built)| *is_built && name.starts_with("rdma"));
    let lacks = |(name, is_built): &&(&str, bool)| !is_built && !name.starts_with("rdma");
    let mut lacking: Vec<&str> = FEATURES.iter().filter(lacks).map(|(name, _)| *name).collect();
    lacking.extend((!has_rdma).then_some("rdma"));
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("built with the features {}; without {}", list(&built()), list(&lacking))
}

/// The version, and the features.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> =
        LazyLock::new(|| format!("{}\n{}", env!("CARGO_PKG_VERSION"), words()));
    &VERSION
}
