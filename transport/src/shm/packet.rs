//! The packets of the control socket. They are few and small, and each carries at most one open file. The bytes
//! of a session never pass through this socket.

use super::error::ShmError;
use crate::limits::PACKET_BYTES_MAX;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// The format version of shared memory, in the server's first packet.
const VERSION: u8 = 1;

const RINGS: u8 = 1;
const REFUSED: u8 = 2;
const WAKE_UP: u8 = 3;
const FILE: u8 = 4;

/// A packet.
#[derive(Debug)]
pub(super) enum Packet {
    /// The server's first packet: the file with the rings, and the size of each.
    Rings(OwnedFd, u64),
    /// The server's only packet if it refuses the session: the reason.
    Refused(String),
    /// A wake-up: look at the rings.
    WakeUp,
    /// A file for the user of the session.
    File(OwnedFd),
}

/// The result of a receive.
pub(super) enum PacketOutcome {
    Packet(Packet),
    Nothing,
    /// The peer has gone.
    Ended,
}

/// The first packet of a session.
pub(super) fn send_rings<Fd: AsFd>(socket: Fd, file: BorrowedFd<'_>, ring_bytes: usize) -> Result<(), Errno> {
    let mut bytes = [0; 16];
    bytes[..2].copy_from_slice(&[RINGS, VERSION]);
    bytes[8..].copy_from_slice(&(ring_bytes as u64).to_le_bytes());
    send_packet(socket, &bytes, Some(file))
}

/// The only packet of a session that is refused.
pub(super) fn send_refusal<Fd: AsFd>(socket: Fd, why: &str) -> Result<(), Errno> {
    let end = (0..=why.len().min(PACKET_BYTES_MAX - 1)).rev().find(|&end| why.is_char_boundary(end));
    let mut bytes = vec![REFUSED];
    bytes.extend_from_slice(&why.as_bytes()[..end.unwrap_or(0)]);
    send_packet(socket, &bytes, None)
}

/// Wakes the peer.
pub(super) fn send_wake_up<Fd: AsFd>(socket: Fd) -> Result<(), Errno> {
    send_packet(socket, &[WAKE_UP], None)
}

/// Sends an open file.
pub(super) fn send_file<Fd: AsFd>(socket: Fd, file: BorrowedFd<'_>) -> Result<(), Errno> {
    send_packet(socket, &[FILE], Some(file))
}

/// Sends with flags of this call only: the peer could change the flags of a shared descriptor, such as an eventfd.
fn send_packet<Fd: AsFd>(socket: Fd, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files: Vec<BorrowedFd<'_>> = file.into_iter().collect();
    if !files.is_empty() {
        let pushed = ancillary.push(SendAncillaryMessage::ScmRights(&files));
        debug_assert!(pushed, "there is space for one");
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    retry_on_intr(|| rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags)).map(|_| ())
}

/// The next packet, if one has arrived. Without `takes_files`, no file becomes a descriptor of this process.
pub(super) fn recv<Fd: AsFd>(socket: Fd, takes_files: bool) -> Result<PacketOutcome, ShmError> {
    let mut bytes = [0; PACKET_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let space = if takes_files { &mut space[..] } else { &mut [] };
    let mut ancillary = RecvAncillaryBuffer::new(space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = retry_on_intr(|| {
        rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)
    });
    let got = match got {
        Ok(got) if got.bytes == 0 => return Ok(PacketOutcome::Ended),
        Ok(got) => got,
        Err(Errno::AGAIN) => return Ok(PacketOutcome::Nothing),
        // The peer ended without having read all bytes that we sent.
        Err(Errno::CONNRESET | Errno::PIPE) => return Ok(PacketOutcome::Ended),
        Err(error) => return Err(ShmError::System("read the control socket", error)),
    };
    let mut files: Vec<OwnedFd> = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            files.extend(fds);
        }
    }
    if files.len() > 1 || got.flags.intersects(ReturnFlags::CTRUNC | ReturnFlags::TRUNC) {
        // If the system did not deliver a file, the reason may be a lack of descriptors, but no error says so.
        return Err(ShmError::Packet(if takes_files {
            "it is too long, has several files, or no descriptor was free for its file (raise `ulimit -n`)"
        } else {
            "it is too long, or has a file"
        }));
    }
    parse(&bytes[..got.bytes], files.pop()).map(PacketOutcome::Packet)
}

fn parse(bytes: &[u8], file: Option<OwnedFd>) -> Result<Packet, ShmError> {
    match (bytes, file) {
        ([RINGS, VERSION, rest @ ..], Some(file)) => match rest {
            [0, 0, 0, 0, 0, 0, size @ ..] => size
                .try_into()
                .map(|size| Packet::Rings(file, u64::from_le_bytes(size)))
                .map_err(|_| ShmError::Packet("the first packet has a wrong length")),
            _ => Err(ShmError::Packet("the first packet has unknown bytes")),
        },
        ([RINGS, version, ..], _) if *version != VERSION => {
            Err(ShmError::Version { got: *version, ours: VERSION })
        }
        ([REFUSED, why @ ..], None) => Ok(Packet::Refused(String::from_utf8_lossy(why).into_owned())),
        ([WAKE_UP], None) => Ok(Packet::WakeUp),
        ([FILE], Some(file)) => Ok(Packet::File(file)),
        _ => Err(ShmError::Packet("its kind is unknown")),
    }
}
