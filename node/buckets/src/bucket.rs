//! A bucket as a store of checkpoints. A folder is a prefix of names; an object without bytes reserves it.

use crate::BucketError;
use crate::download::Download;
use crate::limits::{BUCKET_CALLS_AT_ONCE, BUCKET_CONNECT, BUCKET_REQUEST, BUCKET_RETRIES};
use crate::put::put_new;
use crate::requests::Requests;
use crate::upload::Upload;
use gannet_core::{CheckpointStore, OpenedFile, StoreWriter, StoredFile};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    ClientConfigKey, Error, ObjectStore, ObjectStoreExt, ObjectStoreScheme, PutMode, PutPayload, RetryConfig,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The object that reserves a folder.
const MARKER: &str = "RESERVED";

/// A [`CheckpointStore`] in a bucket, below a path.
#[derive(Debug)]
pub(crate) struct BucketStore {
    requests: Arc<Requests>,
    objects: Arc<dyn ObjectStore>,
    path: Path,
    /// The store has refused to write an object that exists.
    refuses: AtomicBool,
}

impl BucketStore {
    pub(crate) fn open(url: &str) -> Result<BucketStore, BucketError> {
        let refused = |why: String| BucketError::Url { url: url.into(), why };
        let parsed = url.parse().map_err(|_| refused("it is no URL".into()))?;
        let (scheme, path) = ObjectStoreScheme::parse(&parsed).map_err(|e| refused(e.to_string()))?;
        let of_url = Path::parse(path).map_err(|e| refused(e.to_string()))?;
        // Another one may be installed already, which does as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let objects = objects(&scheme, url).map_err(|error| refused(error.to_string()))?;
        let Some(objects) = objects else {
            return Err(refused("the schemes are s3, gs and az, and https addresses of these".into()));
        };
        let requests = Requests::start().map_err(|source| BucketError::Thread { url: url.into(), source })?;
        Ok(BucketStore { requests: requests.into(), objects, path: of_url, refuses: AtomicBool::new(false) })
    }

    fn folder(&self, folder: &str) -> Path {
        self.path.clone().join(folder)
    }

    fn object(&self, folder: &str, name: &str) -> Path {
        self.folder(folder).join(name)
    }

    /// Writes an object unless it exists.
    fn put_if_absent(&self, path: Path, bytes: Vec<u8>) -> io::Result<()> {
        let objects = self.objects.clone();
        self.requests.wait(async move {
            objects.put_opts(&path, PutPayload::from(bytes), PutMode::Create.into()).await.map(drop)
        })
    }

    /// Checks once that the store refuses to write this object, which exists. A store that ignores the condition would
    /// give one number to two savers.
    fn check_refusal(&self, marker: Path) -> io::Result<()> {
        if self.refuses.load(Relaxed) {
            return Ok(());
        }
        match self.put_if_absent(marker, Vec::new()) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.refuses.store(true, Relaxed);
                Ok(())
            }
            Err(e) => Err(e),
            Ok(()) => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "this object store writes an object that exists, although it was told not to (If-None-Match), so two \
                 jobs could take the same number: use another store or a newer version of it",
            )),
        }
    }

    /// The names and lengths of the objects in a folder, with the marker.
    fn objects_in(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        let (objects, path) = (self.objects.clone(), self.folder(folder));
        let of_folder = path.clone();
        let listed =
            self.requests.wait(async move { objects.list_with_delimiter(Some(&of_folder)).await })?;
        let stored = |object: object_store::ObjectMeta| {
            let written = object.last_modified.timestamp().try_into().ok();
            let name = object.location.filename()?.to_owned();
            Some(StoredFile { name, bytes: object.size, written })
        };
        // The folder itself may be an object: consoles of stores make one.
        let is_file = |object: &object_store::ObjectMeta| object.location != path;
        let files: Vec<StoredFile> = listed.objects.into_iter().filter(is_file).filter_map(stored).collect();
        if files.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(files) }
    }

    fn remove_all(&self, folder: &str, names: &[String]) -> io::Result<()> {
        for some in names.chunks(BUCKET_CALLS_AT_ONCE) {
            let begin = |name: &String| {
                let (objects, path) = (self.objects.clone(), self.object(folder, name));
                self.requests.begin(async move {
                    match objects.delete(&path).await {
                        Err(Error::NotFound { .. }) => Ok(()),
                        done => done,
                    }
                })
            };
            let begun: Vec<_> = some.iter().map(begin).collect();
            begun.into_iter().try_for_each(|removed| removed.wait())?;
        }
        Ok(())
    }
}

impl CheckpointStore for BucketStore {
    fn reserve(&self, folder: &str) -> io::Result<bool> {
        let marker = self.object(folder, MARKER);
        match self.put_if_absent(marker.clone(), Vec::new()) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            done => {
                done?;
                self.check_refusal(marker)?;
                Ok(true)
            }
        }
    }

    fn folders(&self) -> io::Result<Vec<String>> {
        let (objects, path) = (self.objects.clone(), self.path.clone());
        let listed = self.requests.wait(async move { objects.list_with_delimiter(Some(&path)).await })?;
        let name = |path: &Path| path.filename().map(str::to_owned);
        Ok(listed.common_prefixes.iter().filter_map(name).collect())
    }

    fn files(&self, folder: &str) -> io::Result<Vec<StoredFile>> {
        let mut files = self.objects_in(folder)?;
        files.retain(|file| file.name != MARKER);
        Ok(files)
    }

    fn create(&self, folder: &str, name: &str) -> io::Result<Box<dyn StoreWriter>> {
        let place = (self.requests.clone(), self.objects.clone(), self.object(folder, name));
        Ok(Box::new(Upload::new(place)))
    }

    fn open(&self, folder: &str, name: &str) -> io::Result<OpenedFile> {
        let (objects, path) = (self.objects.clone(), self.object(folder, name));
        let (of_head, at) = (objects.clone(), path.clone());
        let bytes = self.requests.wait(async move { of_head.head(&at).await })?.size;
        Ok(OpenedFile {
            bytes,
            input: Box::new(Download::new((self.requests.clone(), objects, path), bytes)),
        })
    }

    fn publish(&self, folder: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        put_new(&(self.requests.clone(), self.objects.clone(), self.object(folder, name)), bytes.to_vec())
    }

    fn sync(&self, _folder: &str) -> io::Result<()> {
        Ok(()) // an object is durable with its name
    }

    fn is_reserved(&self, folder: &str) -> io::Result<bool> {
        let (objects, path) = (self.objects.clone(), self.object(folder, MARKER));
        match self.requests.wait(async move { objects.head(&path).await }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            found => found.map(|_| true),
        }
    }

    fn remove_files(&self, folder: &str, names: &[String]) -> io::Result<()> {
        self.remove_all(folder, names)
    }

    fn remove_folder(&self, folder: &str) -> io::Result<()> {
        // Objects of the user stay.
        self.remove_all(folder, &[MARKER.to_owned()])
    }
}

/// Refuses settings of the environment with which the client would panic at its first request.
fn check_environment() -> Result<(), Error> {
    let wrong = |name: &str, what: &str| {
        Err(Error::Generic { store: "environment", source: format!("{name} {what}").into() })
    };
    for (name, value) in std::env::vars() {
        let is_setting = ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|begin| name.starts_with(begin));
        if !is_setting || value.is_empty() {
            continue;
        }
        if value.contains(char::is_control) {
            return wrong(&name, "has a line break or another control character: leave it out");
        }
        if name.contains("ENDPOINT") && !value.contains("://") && value.parse::<bool>().is_err() {
            return wrong(&name, "is no address such as https://HOST:PORT");
        }
    }
    Ok(())
}

/// The client of a bucket, with limits for its requests. `None`: the scheme is none of a bucket.
pub(crate) fn objects(scheme: &ObjectStoreScheme, url: &str) -> Result<Option<Arc<dyn ObjectStore>>, Error> {
    check_environment()?;
    let retry = RetryConfig {
        max_retries: BUCKET_RETRIES,
        retry_timeout: BUCKET_REQUEST * 2,
        ..RetryConfig::default()
    };
    let seconds = |time: Duration| format!("{} seconds", time.as_secs());
    let limits = [
        (ClientConfigKey::Timeout, seconds(BUCKET_REQUEST)),
        (ClientConfigKey::ConnectTimeout, seconds(BUCKET_CONNECT)),
    ];
    Ok(Some(match scheme {
        ObjectStoreScheme::AmazonS3 => {
            let mut builder = AmazonS3Builder::from_env().with_url(url).with_retry(retry);
            for (key, value) in limits {
                builder = builder.with_config(AmazonS3ConfigKey::Client(key), value);
            }
            Arc::new(builder.build()?)
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            let mut builder = GoogleCloudStorageBuilder::from_env().with_url(url).with_retry(retry);
            for (key, value) in limits {
                builder = builder.with_config(GoogleConfigKey::Client(key), value);
            }
            Arc::new(builder.build()?)
        }
        ObjectStoreScheme::MicrosoftAzure => {
            let mut builder = MicrosoftAzureBuilder::from_env().with_url(url).with_retry(retry);
            for (key, value) in limits {
                builder = builder.with_config(AzureConfigKey::Client(key), value);
            }
            Arc::new(builder.build()?)
        }
        _ => return Ok(None),
    }))
}
