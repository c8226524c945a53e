//! Writes an object in parts, of which a few are on their way at a time. It does not replace an object that is there.

use crate::limits::{BUCKET_PART_BYTES, BUCKET_PARTS_AT_ONCE, BUCKET_PARTS_MAX};
use crate::put::put_new;
use crate::requests::{Pending, Requests};
use gannet_core::StoreWriter;
use object_store::path::Path;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// Where requests go, and the object.
pub(crate) type Place = (Arc<Requests>, Arc<dyn ObjectStore>, Path);

/// Writes an object. A short one is one request. Others are an upload in parts, which is aborted unless it is finished.
pub(crate) struct Upload {
    place: Place,
    /// Bytes that are not on their way.
    part: Vec<u8>,
    upload: Option<Box<dyn MultipartUpload>>,
    sent: VecDeque<Pending<()>>,
    parts: usize,
    /// The object is there.
    complete: bool,
    failed: bool,
}

impl Upload {
    pub(crate) fn new(place: Place) -> Upload {
        let (part, sent) = (Vec::new(), VecDeque::new());
        Upload { place, part, upload: None, sent, parts: 0, complete: false, failed: false }
    }

    /// Bytes of the next part. Later ones are longer, because a store limits their number.
    fn part_bytes(&self) -> usize {
        if self.parts < BUCKET_PARTS_MAX / 10 { BUCKET_PART_BYTES } else { 4 * BUCKET_PART_BYTES }
    }

    /// Sends the part that is collected.
    fn send(&mut self) -> io::Result<()> {
        let (requests, objects, path) = &self.place;
        if self.parts >= BUCKET_PARTS_MAX {
            let why = format!("a file has more than {BUCKET_PARTS_MAX} parts: use more shards a table");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        while self.sent.len() >= BUCKET_PARTS_AT_ONCE
            && let Some(oldest) = self.sent.pop_front()
        {
            oldest.wait()?;
        }
        if self.upload.is_none() {
            let (objects, path) = (objects.clone(), path.clone());
            self.upload = Some(requests.wait(async move { objects.put_multipart(&path).await })?);
        }
        if let Some(upload) = &mut self.upload {
            let part = upload.put_part(PutPayload::from(std::mem::take(&mut self.part)));
            self.sent.push_back(requests.begin(part));
            self.parts += 1;
        }
        Ok(())
    }

    fn write_now(&mut self, mut bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        match self.part.is_empty() {
            true => std::mem::swap(&mut self.part, &mut bytes),
            false => self.part.append(&mut bytes),
        }
        if self.part.len() >= self.part_bytes() {
            self.send()?;
        }
        Ok(bytes)
    }

    /// Refuses to complete an upload where an object is. Not all stores know a condition for the completion itself.
    fn must_be_new(&self) -> io::Result<()> {
        let (requests, objects, path) = &self.place;
        let (objects, path) = (objects.clone(), path.clone());
        requests.wait(async move {
            match objects.head(&path).await {
                Err(Error::NotFound { .. }) => Ok(()),
                Ok(_) => {
                    let (path, source) = (path.to_string(), "another writer has finished it".into());
                    Err(Error::AlreadyExists { path, source })
                }
                Err(error) => Err(error),
            }
        })
    }

    fn complete(&mut self) -> io::Result<()> {
        if self.upload.is_none() {
            return put_new(&self.place, std::mem::take(&mut self.part));
        }
        if !self.part.is_empty() {
            self.send()?;
        }
        while let Some(part) = self.sent.pop_front() {
            part.wait()?;
        }
        self.must_be_new()?;
        if let Some(mut upload) = self.upload.take() {
            let (requests, ..) = &self.place;
            // An upload whose completion failed may be complete. If it is not, the bucket's rules remove its parts.
            requests.wait(async move { upload.complete().await.map(drop) })?;
        }
        Ok(())
    }
}

impl StoreWriter for Upload {
    fn write(&mut self, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
        if self.failed || self.complete {
            return Err(over());
        }
        let written = self.write_now(bytes);
        self.failed = written.is_err();
        written
    }

    /// Completes the upload: many files that have ended, and are not finished yet, must not keep their parts in memory.
    fn end(&mut self) -> io::Result<()> {
        if self.failed || self.complete {
            return Err(over());
        }
        let completed = self.complete();
        (self.complete, self.failed) = (completed.is_ok(), completed.is_err());
        completed
    }

    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.complete { Ok(()) } else { self.end() }
    }
}

fn over() -> io::Error {
    io::Error::other("the upload has ended, or was given up after an earlier error")
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(mut upload) = self.upload.take() {
            self.sent.clear();
            let (requests, _, path) = &self.place;
            let aborted = requests.wait(async move { upload.abort().await });
            if let Err(error) = aborted {
                tracing::warn!(
                    "{path}: an upload was given up, but not aborted: {error}; its parts take space in the bucket until \
                     a rule for incomplete uploads removes them"
                );
            }
        }
    }
}
