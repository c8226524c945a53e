//! One TLS connection over a nonblocking socket: what [`crate::Stream`] asks for, with records in between.

use super::config::{TlsClient, TlsServer};
use super::error::TlsError;
use crate::limits::{PARTS_MAX, TLS_BYTES};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};

/// The first byte of a record that begins a handshake, and of one that ends everything.
const HANDSHAKE: u8 = 0x16;
const ALERT: u8 = 0x15;
/// What one is told who does not speak TLS: a fatal alert, unexpected message.
const NOT_TLS: [u8; 7] = [ALERT, 3, 3, 0, 2, 2, 10];

/// The TLS half of a stream; the socket (or what stands for it) is given to each call.
pub(crate) struct TlsSession {
    connection: Connection,
    /// Received and not yet looked at: `received[start..end]`. Empty until something comes.
    received: Vec<u8>,
    start: usize,
    end: usize,
    /// A first byte has come, and it was TLS.
    begun: bool,
    /// Bytes whose records wait for room in the socket. They count as sent once the records are gone: so whoever
    /// sends keeps offering them, and comes back when there is room.
    accepted: usize,
    /// A send was put off until the handshake is over.
    put_off: bool,
}

/// What looking for more brought.
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
        TlsSession { connection, received, start, end, begun: false, accepted: 0, put_off: false }
    }

    fn is_client(&self) -> bool {
        matches!(self.connection, Connection::Client(_))
    }

    /// Goes on with the handshake; `true` when it is over and all of it has gone.
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

    /// Records of its own wait for room in the socket.
    pub(crate) fn holds(&self) -> bool {
        self.connection.wants_write()
    }

    /// A send that was put off until the handshake is over may be tried now: told once.
    pub(crate) fn may_send_now(&mut self) -> bool {
        !self.connection.is_handshaking() && std::mem::take(&mut self.put_off)
    }

    /// As [`crate::Stream::recv`].
    pub(crate) fn recv(
        &mut self,
        socket: &mut (impl Read + Write),
        pieces: &mut [IoSliceMut<'_>],
    ) -> io::Result<Option<usize>> {
        let mut filled = 0;
        for piece in pieces {
            let mut rest = &mut piece[..];
            while !rest.is_empty() {
                // Plaintext first: more records are read only when there is none.
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
        pieces: &[IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        let flushed = self.flush(socket)?;
        if self.connection.is_handshaking() {
            self.put_off = true;
            return Ok(None);
        }
        if !flushed {
            return Ok(None);
        }
        let mut sent = std::mem::take(&mut self.accepted);
        loop {
            let taken = self.encrypt(pieces, sent)?;
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

    /// Makes records of what stands behind the first `skip` bytes, up to a limit; how many bytes are in them.
    fn encrypt(&mut self, pieces: &[IoSlice<'_>], mut skip: usize) -> io::Result<usize> {
        let mut rest = [IoSlice::new(&[]); PARTS_MAX];
        let mut count = 0;
        for piece in pieces.iter().take(PARTS_MAX) {
            let gone = skip.min(piece.len());
            skip -= gone;
            if gone < piece.len() {
                rest[count] = IoSlice::new(&piece[gone..]);
                count += 1;
            }
        }
        if count == 0 {
            return Ok(0);
        }
        self.connection.writer().write_vectored(&rest[..count])
    }

    /// Gives records to the socket; `false` when it takes no more.
    fn flush(&mut self, socket: &mut (impl Read + Write)) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.last_word(socket).unwrap_or(error)),
            }
        }
        Ok(true)
    }

    /// What the other side said before it ended the connection, if that is a reason.
    fn last_word(&mut self, socket: &mut impl Read) -> Option<io::Error> {
        let mut bytes = [0; 1024];
        while let Ok(got @ 1..) = socket.read(&mut bytes) {
            self.connection.read_tls(&mut &bytes[..got]).ok()?;
            if let Err(error) = self.connection.process_new_packets() {
                return Some(fault(&error, self.is_client()));
            }
        }
        None
    }

    /// Takes records from the socket and opens what is whole; what the protocol itself has to say is sent.
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
            return Ok(TlsRead::End); // the peer has said that it ends
        }
        self.start += taken;
        let opened = self.connection.process_new_packets();
        // Also when that failed: the peer is told why.
        let flushed = self.flush(socket);
        opened.map_err(|error| fault(&error, self.is_client()))?;
        flushed?;
        Ok(TlsRead::Some)
    }

    /// Whoever does not speak TLS is told so in a way that a client of ours understands.
    fn check_first(&mut self, socket: &mut impl Write) -> io::Result<()> {
        let first = self.received[0];
        if self.begun || first == HANDSHAKE || (self.is_client() && first == ALERT) {
            self.begun = true;
            return Ok(());
        }
        if self.is_client() {
            return Err(io::Error::other(TlsError::PlainServer));
        }
        // Best effort: it is being refused anyway.
        let _ = socket.write(&NOT_TLS);
        Err(io::Error::other(TlsError::PlainClient))
    }

    /// Gives the memory of received records back when there are none.
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

/// The stream has ended: what came before that is handed out first.
fn end(filled: usize) -> io::Result<Option<usize>> {
    if filled > 0 { Ok(Some(filled)) } else { Err(ErrorKind::UnexpectedEof.into()) }
}

fn fault(error: &rustls::Error, of_server: bool) -> io::Error {
    io::Error::other(TlsError::new(error, of_server))
}
