//! Objects that are data: where they are, and what they were when a process saw them first.
//!
//! One process has one thread for all requests and one client for each bucket, so that connections are used again. It
//! remembers each object as it saw or listed it last: what is read later must be of that version.

use crate::bucket::objects;
use crate::limits::{BUCKET_CONNECT, BUCKET_REQUEST};
use crate::requests::{Requests, ask, bucket_error};
use crate::web;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, ObjectStoreScheme};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of an object before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectFacts {
    /// The length in bytes. `None`: its server does not say.
    pub bytes: Option<u64>,
    /// Whether it can be read in parts. Otherwise only from its beginning.
    pub ranges: bool,
    /// Its ETag, or else the time of its last change. Empty: its server says neither.
    pub version: String,
}

/// What is directly in a folder of a bucket: the last parts of the names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedObjects {
    /// Folders.
    pub folders: Vec<String>,
    /// Objects.
    pub objects: Vec<String>,
}

/// The schemes of buckets.
const BUCKETS: [&str; 3] = ["s3", "gs", "az"];
/// The schemes of plain web servers.
const WEB: [&str; 2] = ["http", "https"];

/// Whether a name of data is the URL of an object: `s3://`, `gs://`, `az://`, `http://` or `https://`.
pub fn is_object_url(name: &str) -> bool {
    name.split_once("://").is_some_and(|(scheme, _)| BUCKETS.contains(&scheme) || WEB.contains(&scheme))
}

/// An object and the client that reaches it.
#[derive(Clone)]
pub(crate) enum Object {
    Bucket(Arc<dyn ObjectStore>, Path),
    Web(reqwest::Client, reqwest::Url),
}

/// What all objects of this process share.
struct Clients {
    requests: Arc<Requests>,
    web: reqwest::Client,
    /// By scheme and bucket.
    buckets: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
    /// By URL.
    seen: Mutex<HashMap<String, ObjectFacts>>,
    /// First bytes, by URL.
    heads: Mutex<HashMap<String, Vec<u8>>>,
}

static CLIENTS: Mutex<Option<Arc<Clients>>> = Mutex::new(None);

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clients() -> io::Result<Arc<Clients>> {
    let mut kept = lock(&CLIENTS);
    if let Some(clients) = &*kept {
        return Ok(clients.clone());
    }
    // Another one may be installed already, which does as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let web = reqwest::Client::builder().connect_timeout(BUCKET_CONNECT).read_timeout(BUCKET_REQUEST);
    let web = web.user_agent("gannet").build().map_err(|error| io::Error::other(web::words(error)))?;
    let requests = Arc::new(Requests::start()?);
    let clients = Arc::new(Clients {
        requests,
        web,
        buckets: Mutex::default(),
        seen: Mutex::default(),
        heads: Mutex::default(),
    });
    *kept = Some(clients.clone());
    Ok(clients)
}

fn not_usable(why: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("this is no URL of data that can be used: {why}"))
}

/// A client could not be made of the settings in the environment.
fn wrong_settings(url: &str, why: impl std::fmt::Display) -> io::Error {
    let names = match url.split_once("://").map(|(scheme, _)| scheme) {
        Some("s3") => "AWS_...",
        Some("gs") => "GOOGLE_...",
        _ => "AZURE_...",
    };
    let what = format!("a setting in the environment ({names}) is missing or cannot be used: {why}");
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

impl Clients {
    /// The object with this URL.
    fn object(&self, url: &str) -> io::Result<Object> {
        let Some((scheme, rest)) = url.split_once("://") else { return Err(not_usable("it has no scheme")) };
        if WEB.contains(&scheme) {
            return Ok(Object::Web(self.web.clone(), url.parse().map_err(not_usable)?));
        }
        let (bucket, name) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(not_usable("it names no bucket"));
        }
        // Names are taken as they are, as the tools of the stores do, without the escapes of URLs.
        let path = Path::parse(name).map_err(not_usable)?;
        Ok(Object::Bucket(self.bucket(&format!("{scheme}://{bucket}"))?, path))
    }

    fn bucket(&self, url: &str) -> io::Result<Arc<dyn ObjectStore>> {
        let mut buckets = lock(&self.buckets);
        if let Some(bucket) = buckets.get(url) {
            return Ok(bucket.clone());
        }
        let parsed = url.parse().map_err(not_usable)?;
        let (scheme, _) = ObjectStoreScheme::parse(&parsed).map_err(not_usable)?;
        let bucket = objects(&scheme, url).map_err(|error| wrong_settings(url, error))?;
        let bucket = bucket.ok_or_else(|| not_usable("its scheme is none of a bucket"))?;
        buckets.insert(url.to_owned(), bucket.clone());
        Ok(bucket)
    }
}

/// The object with this URL, and the thread that sends its requests.
pub(crate) fn object(url: &str) -> io::Result<(Object, Arc<Requests>)> {
    let clients = clients()?;
    Ok((clients.object(url)?, clients.requests.clone()))
}

/// What an object is now.
///
/// # Errors
/// There is no such object, or its server cannot be reached or refuses it: with what to do.
pub fn look_at_object(url: &str) -> io::Result<ObjectFacts> {
    let (object, requests) = object(url)?;
    requests.send(async move { object.look().await }).wait()
}

/// What an object was when this process saw or listed it last.
///
/// # Errors
/// As for [`look_at_object`].
pub fn object_facts(url: &str) -> io::Result<ObjectFacts> {
    let clients = clients()?;
    if let Some(facts) = lock(&clients.seen).get(url) {
        return Ok(facts.clone());
    }
    see_object(url)
}

/// What an object is now. From then on it must be so.
///
/// # Errors
/// As for [`look_at_object`].
pub fn see_object(url: &str) -> io::Result<ObjectFacts> {
    let (clients, facts) = (clients()?, look_at_object(url)?);
    lock(&clients.heads).remove(url);
    lock(&clients.seen).insert(url.to_owned(), facts.clone());
    Ok(facts)
}

/// The first bytes of an object, at most so many. They are remembered.
///
/// # Errors
/// As for [`look_at_object`].
pub fn object_head(url: &str, most: u64) -> io::Result<Vec<u8>> {
    let clients = clients()?;
    let of_it = |facts: &ObjectFacts| facts.bytes.unwrap_or(0).min(most);
    let facts = object_facts(url)?;
    if let Some(head) = lock(&clients.heads).get(url).filter(|head| head.len() as u64 == of_it(&facts)) {
        return Ok(head.clone());
    }
    let (object, part) = (clients.object(url)?, 0..of_it(&facts));
    let head = match part.is_empty() {
        true => Vec::new(),
        false => clients.requests.send(async move { object.range(part, &facts).await }).wait()?,
    };
    lock(&clients.heads).insert(url.to_owned(), head.clone());
    Ok(head)
}

/// Lists what is directly in a folder of a bucket. From then on the objects must be as they are now.
///
/// # Errors
/// The bucket cannot be reached, or refuses it: with what to do.
pub fn list_objects(folder: &str) -> io::Result<ListedObjects> {
    let clients = clients()?;
    let Object::Bucket(store, path) = clients.object(folder)? else {
        return Err(not_usable("a web server cannot list its files"));
    };
    let of_folder = path.clone();
    let list = async move { ask(|| store.list_with_delimiter(Some(&of_folder))).await };
    let listed = clients.requests.begin(list).wait()?;
    let mut seen = lock(&clients.seen);
    let mut objects = Vec::with_capacity(listed.objects.len());
    for object in &listed.objects {
        // The folder itself is an object where somebody made it before there was anything in it.
        let Some(name) = object.location.filename().filter(|_| object.location != path) else { continue };
        let url = format!("{}/{name}", folder.trim_end_matches('/'));
        lock(&clients.heads).remove(&url);
        seen.insert(url, facts(object));
        objects.push(name.to_owned());
    }
    let name = |folder: &Path| folder.filename().map(str::to_owned);
    Ok(ListedObjects { folders: listed.common_prefixes.iter().filter_map(name).collect(), objects })
}

/// What a store says of an object. A list of Azure has the tag of an object without the quotes that its answers have.
fn facts(object: &ObjectMeta) -> ObjectFacts {
    let changed = || object.last_modified.timestamp_micros().to_string();
    let version = object.e_tag.as_ref().map_or_else(changed, |tag| tag.trim_matches('"').to_owned());
    ObjectFacts { bytes: Some(object.size), ranges: true, version }
}

/// The error of an object that is another one now.
pub(crate) fn changed(then: &ObjectFacts, now: &ObjectFacts) -> io::Error {
    let shown = |facts: &ObjectFacts| {
        let bytes = facts.bytes.map_or("unknown".into(), |bytes| bytes.to_string());
        format!("{bytes} bytes, version {}", facts.version)
    };
    io::Error::other(format!(
        "the object has changed since the training began ({} then; {} now): its examples would be learned twice or \
         never; train on objects that do not change, and start again",
        shown(then),
        shown(now)
    ))
}

impl Object {
    async fn look(&self) -> io::Result<ObjectFacts> {
        match self {
            Object::Bucket(store, path) => Ok(facts(&ask(|| store.head(path)).await.map_err(bucket_error)?)),
            Object::Web(client, url) => web::look(client, url).await,
        }
    }

    /// Reads a part of an object, which must be of this version.
    pub(crate) async fn range(&self, range: Range<u64>, then: &ObjectFacts) -> io::Result<Vec<u8>> {
        let read = match self {
            Object::Bucket(store, path) => bucket_range(&**store, path, range, then).await,
            Object::Web(client, url) => web::range(client, url, range, then).await,
        };
        match read {
            Ok(bytes) => Ok(bytes),
            // A range behind the end of an object that has become shorter is refused.
            Err(error) => match self.look().await {
                Ok(now) if now != *then => Err(changed(then, &now)),
                _ => Err(error),
            },
        }
    }
}

/// A body that is cut is continued by the client, if the object is still the same.
async fn bucket_range(
    store: &dyn ObjectStore,
    path: &Path,
    range: Range<u64>,
    then: &ObjectFacts,
) -> io::Result<Vec<u8>> {
    let read = || async {
        let options = GetOptions { range: Some(range.clone().into()), ..GetOptions::default() };
        let got = store.get_opts(path, options).await?;
        Ok((facts(&got.meta), got.bytes().await?))
    };
    let (now, bytes) = ask(read).await.map_err(bucket_error)?;
    if now != *then {
        return Err(changed(then, &now));
    }
    if bytes.len() as u64 != range.end - range.start {
        let (got, asked) = (bytes.len(), range.end - range.start);
        return Err(io::Error::other(format!("the store sent {got} bytes instead of {asked}; try again")));
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data of a pattern in a container of Azure was refused as changed.
    #[test]
    fn the_tag_of_a_list_is_that_of_an_answer() {
        let of = |tag: &str| ObjectMeta {
            location: Path::from("day/0.svm"),
            last_modified: Default::default(),
            size: 12000,
            e_tag: Some(tag.into()),
            version: None,
        };
        assert_eq!(facts(&of("0x24FBBBEB240F900")), facts(&of("\"0x24FBBBEB240F900\"")));
        assert_ne!(facts(&of("0x24FBBBEB240F900")), facts(&of("\"0x24FBBBEB240F901\"")));
    }
}
