//! Types that replace RDMA in a build without it. None of these types has a value.

use super::DeviceError;
use crate::error::NetError;
use crate::remote::Registrar;
use crate::stream::Stream;
use rustix::fd::OwnedFd;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

#[derive(Debug, Clone, Copy)]
enum Never {}

/// RDMA on this host.
#[derive(Debug, Clone, Copy)]
pub struct Verbs(Never);

/// A stream over RDMA.
#[derive(Debug)]
pub struct VerbsStream(Never);

/// Accepts connections over RDMA.
#[derive(Debug)]
pub struct VerbsListener(Never);

/// The part of a stream that a poll owns.
#[derive(Debug)]
pub struct Watch(Never);

impl Verbs {
    /// This build has no RDMA.
    ///
    /// # Errors
    /// Always: how to build gannet with it.
    pub fn open() -> io::Result<Verbs> {
        Err(io::Error::new(io::ErrorKind::Unsupported, DeviceError::NotBuilt { device: "RDMA".to_owned() }))
    }

    /// This build has no RDMA.
    ///
    /// # Errors
    /// As [`Verbs::open`].
    pub fn open_with(_: usize) -> io::Result<Verbs> {
        Verbs::open()
    }

    pub(crate) fn device(&self) -> String {
        match self.0 {}
    }

    pub(crate) fn listen(&self, _: SocketAddr) -> io::Result<VerbsListener> {
        match self.0 {}
    }

    pub(crate) fn begin_connect(&self, _: SocketAddr, _: &str) -> io::Result<VerbsStream> {
        match self.0 {}
    }

    pub(crate) fn registrar(&self) -> Arc<dyn Registrar> {
        match self.0 {}
    }

    pub(crate) fn avoided(&self, _: &str) -> Option<String> {
        match self.0 {}
    }

    pub(crate) fn has_reached(&self, _: &str) -> bool {
        match self.0 {}
    }
}

impl VerbsListener {
    pub(crate) fn event_fd(&self) -> Arc<OwnedFd> {
        match self.0 {}
    }

    pub(crate) fn accept(&mut self) -> Result<Option<VerbsStream>, NetError> {
        match self.0 {}
    }
}

impl VerbsStream {
    pub(crate) fn is_open(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn watch(&self) -> Watch {
        match self.0 {}
    }

    pub(crate) fn unwatch(&self) {
        match self.0 {}
    }

    pub(crate) fn event_fd(&self) -> Arc<OwnedFd> {
        match self.0 {}
    }
}

impl Stream for VerbsStream {
    fn recv(&mut self, _: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    fn send(&mut self, _: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        match self.0 {}
    }

    fn peer(&self) -> Arc<str> {
        match self.0 {}
    }

    fn is_remote(&self) -> bool {
        match self.0 {}
    }

    fn transport(&self) -> &'static str {
        match self.0 {}
    }
}

impl Watch {
    pub(crate) fn look(&self) -> super::StreamState {
        match self.0 {}
    }

    pub(crate) fn arm(&self) {
        match self.0 {}
    }

    pub(crate) fn woken(&self) {
        match self.0 {}
    }

    pub(crate) fn is_gone(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn is_of(&self, _: &VerbsStream) -> bool {
        match self.0 {}
    }
}
