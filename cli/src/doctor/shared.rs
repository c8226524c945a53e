//! Checks what sessions over shared memory need: a sealed memfd, a socket with an abstract name, and a descriptor that
//! is sent over it.

use crate::doctor::finding::{Finding, Level};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recvmsg, sendmsg, socket_with, sockopt,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

pub fn finding() -> Finding {
    let memory = match sealed() {
        Ok(memory) => memory,
        Err((what, errno)) => {
            return Finding::not(
                "shm",
                Level::Problem,
                format!("cannot {what}: {errno}; tables live in such files too, unless --data-dir is given"),
                "Linux 3.17 or later; a seccomp filter may forbid memfd_create (container runtimes allow it by default)",
            );
        }
    };
    match sent(&memory) {
        Ok(user) => Finding::ok(
            "shm",
            format!("works: sealed memory, sockets with abstract names, descriptors over them (user {user})"),
        ),
        Err((what, errno)) => Finding::note(
            "shm",
            format!("cannot {what}: {errno}; workers on this host use tcp"),
            "a security module (AppArmor, SELinux, Landlock) may forbid abstract unix sockets: allow them",
        ),
    }
}

type ProbeRefusal = (&'static str, Errno);

/// A file in memory whose size cannot change.
fn sealed() -> Result<OwnedFd, ProbeRefusal> {
    let at = |what| move |errno| (what, errno);
    let memory = memfd_create("gannet-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(at("make a file in memory (memfd_create)"))?;
    ftruncate(&memory, 4096).map_err(at("make a file in memory larger"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&memory, seals).map_err(at("seal a file in memory"))?;
    match ftruncate(&memory, 0) {
        Err(Errno::PERM) => Ok(memory),
        _ => Err(("keep a sealed file's size", Errno::INVAL)),
    }
}

/// Sends a descriptor to this process over a socket with an abstract name. Returns the user id that the other end sees.
fn sent(memory: &OwnedFd) -> Result<u32, ProbeRefusal> {
    let at = |what| move |errno| (what, errno);
    let name = format!("gannet/doctor-{}", std::process::id());
    let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).map_err(at("name a socket"))?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = || {
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(at("make a unix socket"))
    };
    let (listener, near) = (socket()?, socket()?);
    bind(&listener, &name).map_err(at("bind a socket to an abstract name"))?;
    listen(&listener, 1).map_err(at("listen at an abstract name"))?;
    connect(&near, &name).map_err(at("connect to an abstract name"))?;
    let far = accept_with(&listener, flags).map_err(at("accept at an abstract name"))?;

    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [memory.as_fd()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(&far, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)
        .map_err(at("send a descriptor"))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8];
    recvmsg(&near, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)
        .map_err(at("receive a descriptor"))?;
    let received = control.drain().any(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => descriptors.count() == 1,
        _ => false,
    });
    if !received {
        return Err(("receive a descriptor", Errno::MSGSIZE));
    }
    let peer = sockopt::socket_peercred(&near).map_err(at("learn who is at the other end of a socket"))?;
    Ok(peer.uid.as_raw())
}
