//! One thread sends requests on many tcp links, and another answers. Each has one poll.

use gannet_transport::tcp::Tcp;
use gannet_transport::{Head, Link, LinkError, Listener, Net, NoOwner, Poll};
use std::time::Duration;

/// A link over tcp.
pub type TcpLink = Link<<Tcp as Net>::Stream>;

/// This value of `aux` marks a frame that must be answered.
pub const LAST: u16 = 1;
/// The longest wait.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Reads frames and answers each one marked [`LAST`] with `answer`, on `count` links until all peers have ended.
pub fn answer(tcp: &Tcp, mut listener: <Tcp as Net>::Listener, count: usize, answer: &[u8]) {
    let (mut poll, mut events) = (tcp.poll().expect("a poll"), Vec::new());
    poll.add_listener(&listener, u64::MAX - 1).expect("a listener");
    let mut links: Vec<Option<TcpLink>> = Vec::new();
    while links.len() < count || links.iter().any(Option::is_some) {
        while let Some(stream) = listener.accept().expect("a connection") {
            let link = Link::new(stream);
            poll.add(link.stream(), links.len() as u64).expect("a stream");
            links.push(Some(link));
        }
        poll.wait(PATIENCE, &mut events).expect("a wait");
        for event in &events {
            let Some(slot) = links.get_mut(event.token as usize) else { continue };
            let Some(link) = slot else { continue };
            link.note(event);
            if serve(link, answer).is_err() {
                *slot = None;
            }
        }
    }
}

fn serve(link: &mut TcpLink, answer: &[u8]) -> Result<(), LinkError> {
    link.flush(&mut NoOwner)?;
    while link.is_readable() {
        link.fill(&mut NoOwner)?;
        let (receive, transmit) = link.halves();
        while let Some(frame) = receive.peek(&mut NoOwner)? {
            if frame.head.aux == LAST {
                let head = Head::new(2, 0, frame.head.id, [0; 4]);
                transmit.send_copy(head, answer).expect("space for an answer");
            }
            receive.consume();
        }
        link.flush(&mut NoOwner)?;
    }
    Ok(())
}

/// Connects links to one address and watches them with this poll. The token of each is its index.
pub fn connect(tcp: &Tcp, poll: &mut <Tcp as Net>::Poll, addr: &str, count: usize) -> Vec<TcpLink> {
    let one = |number| {
        let link = Link::new(tcp.connect(addr, PATIENCE).expect("a connection"));
        poll.add(link.stream(), number).expect("a stream");
        link
    };
    (0..count as u64).map(one).collect()
}

/// Sends a request on every link and waits for all answers.
pub fn ask(links: &mut [TcpLink], poll: &mut impl Poll, request: &[u8]) {
    for link in &mut *links {
        link.transmit().send_copy(Head::new(1, LAST, 0, [0; 4]), request).expect("space for a request");
        link.flush(&mut NoOwner).expect("a peer");
    }
    let (mut left, mut events) = (links.len(), Vec::new());
    while left > 0 {
        poll.wait(PATIENCE, &mut events).expect("a wait");
        for event in &events {
            let link = &mut links[event.token as usize];
            link.note(event);
            link.flush(&mut NoOwner).expect("a peer");
            while link.is_readable() {
                link.fill(&mut NoOwner).expect("a peer");
                while link.receive().peek(&mut NoOwner).expect("a sound frame").is_some() {
                    link.receive().consume();
                    left -= 1;
                }
            }
        }
    }
}
