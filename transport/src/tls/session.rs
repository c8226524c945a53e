//! One TLS connection over a nonblocking socket. It offers what [`crate::Stream`] needs, with TLS records in between.

use super::config::{TlsClient, TlsServer};
use super::error::TlsError;
use crate::limits::{PARTS_MAX, TLS_BYTES};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};

/// The first byte of a record that begins a handshake, and of one that is an alert.
const HANDSHAKE: u8 = 0x16;
const ALERT: u8 = 0x15;
/// The answer to a peer that does not speak TLS: the fatal alert "unexpected message".
const NOT_TLS: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 10];

/// The TLS half of a stream. Each call gets the socket, or a stand-in for it.
pub(crate) struct TlsSession {
    connection: Connection,
    /// Bytes received and not yet processed: `received[start..end]`. No memory is allocated until bytes arrive.
    received: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the first byte has come and was TLS.
    is_tls: bool,
    /// Bytes whose records wait for space in the socket. They count as sent only after the socket has taken the
    /// records. So the sender keeps offering these bytes, and tries again when there is space.
    accepted: usize,
    /// A send was delayed until the handshake is complete.
    delayed: bool,
}

/// The result of reading more records.
enum TlsRead {
    Some,
    Nothing,
    End,
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Session")
    }
}

impl TlsSession {
    /// The listener's side.
    pub(crate) fn server(tls: &TlsServer) -> Result<TlsSession, TlsError> {
        let connection =
            ServerConnection::new(tls.0.clone()).map_err(|error| TlsError::new(&error, false))?;
        Ok(TlsSession::new(connection.into()))
    }

    /// The side that connects to `addr`.
    pub(crate) fn client(tls: &TlsClient, addr: &str) -> Result<TlsSession, TlsError> {
        let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host).trim_matches(['[', ']']);
        let name = match &tls.name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))?,
        };
        let connection = ClientConnection::new(tls.config.clone(), name);
        Ok(TlsSession::new(connection.map_err(|error| TlsError::new(&error, true))?.into()))
    }

    fn new(connection: Connection) -> TlsSession {
        let (received, start, end) = (Vec::new(), 0, 0);
        TlsSession { connection, received, start, end, is_tls: false, accepted: 0, delayed: false }
    }

    fn is_client(&self) -> bool {
        matches!(self.connection, Connection::Client(_))
    }

    /// Continues the handshake. `true`: it is complete and all its bytes have been sent.
    pub(crate) fn shake_hands(&mut self, socket: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.is_handshaking() {
            match self.advance(socket)? {
                TlsRead::Some => {}
                TlsRead::Nothing => return Ok(false),
                TlsRead::End => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
        self.flush(socket)
    }

    /// Whether records that TLS itself made wait for space in the socket.
    pub(crate) fn holds(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether a send that was delayed until the end of the handshake may be tried now. This is reported once.
    pub(crate) fn may_send_now(&mut self) -> bool {
        !self.connection.is_handshaking() && std::mem::take(&mut self.delayed)
    }

    /// As [`crate::Stream::recv`].
    pub(crate) fn recv(
        &mut self,
        socket: &mut (impl Read + Write),
        slices: &mut [IoSliceMut<'_>],
    ) -> io::Result<Option<usize>> {
        let mut filled = 0;
        for slice in slices {
            let mut rest = &mut slice[..];
            while !rest.is_empty() {
                // Plaintext first: more records are read only if there is no plaintext.
                match self.connection.reader().read(rest) {
                    Ok(0) => return end(filled),
                    Ok(bytes) => {
                        filled += bytes;
                        rest = &mut rest[bytes..];
                        continue;
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
                match self.advance(socket)? {
                    TlsRead::Some => {}
                    TlsRead::Nothing => return Ok((filled > 0).then_some(filled)),
                    TlsRead::End => return end(filled),
                }
            }
        }
        Ok(Some(filled))
    }

    /// As [`crate::Stream::send`].
    pub(crate) fn send(
        &mut self,
        socket: &mut (impl Read + Write),
        slices: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        let flushed = self.flush(socket)?;
        if self.connection.is_handshaking() {
            self.delayed = true;
            return Ok(None);
        }
        if !flushed {
            return Ok(None);
        }
        let mut sent = std::mem::take(&mut self.accepted);
        loop {
            let taken = self.encrypt(slices, sent)?;
            if taken == 0 {
                return Ok(Some(sent));
            }
            if !self.flush(socket)? {
                self.accepted = taken;
                return Ok((sent > 0).then_some(sent));
            }
            sent += taken;
        }
    }

    /// Encrypts the bytes after the first `skip` bytes, up to a limit. Returns how many bytes the records contain.
    fn encrypt(&mut self, slices: &[IoSlice<'_>], mut skip: usize) -> io::Result<usize> {
        let mut rest = [IoSlice::new(&[]); PARTS_MAX];
        let mut count = 0;
        for slice in slices.iter().take(PARTS_MAX) {
            let gone = skip.min(slice.len());
            skip -= gone;
            if gone < slice.len() {
                rest[count] = IoSlice::new(&slice[gone..]);
                count += 1;
            }
        }
        if count == 0 {
            return Ok(0);
        }
        self.connection.writer().write_vectored(&rest[..count])
    }

    /// Writes records to the socket. `false`: it takes no more.
    fn flush(&mut self, socket: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.last_alert(socket).unwrap_or(error)),
            }
        }
        Ok(true)
    }

    /// The peer's last alert, if it explains why the connection ended.
    fn last_alert(&mut self, socket: &mut impl Read) -> Option<io::Error> {
        let mut bytes = [0; 1024];
        while let Ok(got @ 1..) = socket.read(&mut bytes) {
            self.connection.read_tls(&mut &bytes[..got]).ok()?;
            if let Err(error) = self.connection.process_new_packets() {
                return Some(fault(&error, self.is_client()));
            }
        }
        None
    }

    /// Reads records from the socket and decrypts complete ones. Sends records that the protocol requires.
    fn advance(&mut self, socket: &mut (impl Read + Write)) -> io::Result<TlsRead> {
        self.flush(socket)?;
        if self.start == self.end {
            self.received.resize(TLS_BYTES, 0);
            match socket.read(&mut self.received) {
                Ok(0) => return Ok(TlsRead::End),
                Ok(bytes) => (self.start, self.end) = (0, bytes),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(TlsRead::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(TlsRead::Some),
                Err(error) => return Err(error),
            }
            self.check_first(socket)?;
        }
        let taken = self.connection.read_tls(&mut &self.received[self.start..self.end])?;
        if taken == 0 {
            return Ok(TlsRead::End); // the peer has announced the end
        }
        self.start += taken;
        let opened = self.connection.process_new_packets();
        // Even after a failure, so that the peer learns the reason.
        let flushed = self.flush(socket);
        opened.map_err(|error| fault(&error, self.is_client()))?;
        flushed?;
        Ok(TlsRead::Some)
    }

    /// Answers a peer that does not speak TLS with an alert that our own client understands.
    fn check_first(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let first = self.received[0];
        if self.is_tls || first == HANDSHAKE || (self.is_client() && first == ALERT) {
            self.is_tls = true;
            return Ok(());
        }
        if self.is_client() {
            return Err(io::Error::other(TlsError::PlainServer));
        }
        // If the write fails, nothing is lost: the peer is refused anyway.
        let _ = socket.write(&NOT_TLS);
        Err(io::Error::other(TlsError::PlainClient))
    }

    /// Frees the memory for received records if it is empty.
    pub(crate) fn rest(&mut self) {
        if self.start == self.end {
            (self.received, self.start, self.end) = (Vec::new(), 0, 0);
        }
    }

    /// Bytes of that memory.
    pub(crate) fn held(&self) -> usize {
        self.received.capacity()
    }
}

/// The stream has ended. Bytes that came before are returned first.
fn end(filled: usize) -> io::Result<Option<usize>> {
    if filled > 0 { Ok(Some(filled)) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn fault(error: &rustls::Error, of_server: bool) -> io::Error {
    io::Error::other(TlsError::new(error, of_server))
}
