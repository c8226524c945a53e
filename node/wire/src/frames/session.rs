//! The greeting, pings, and refusals.

frames! {
    /// A worker says who it is and which thread of the server it wants.
    /// The server gives the session to the thread that it names. Refused with 1, 2 no such thread, 9 no session is
    /// free, 11 pusher of 2^63 or more, 12.
    1 HelloFrame "hello" ToServer "`HelloV1`" {}

    /// A server thread accepts a session and grants its credit. 0 means no limit.
    2 WelcomeFrame "welcome" ToWorker "`WelcomeV1`" {
        W0 "credit requests": credit_requests: u64;
        W1 "credit bytes": credit_bytes: u64;
        W2 "silence ms": silence_ms: u64;
        W3 "lease ms":
            /** The time of the server's leases; 0: it needs none. A worker reads rows without a request for at most a
            sixteenth of it. */
            lease_ms: u64;
    }

    /// The server refuses a request. The session goes on.
    15 RefusedFrame "refused" ToWorker "`RefusedV1`" {
        Aux "code": code: u16;
        W0 "kind": /** The kind of the refused request. */ kind: u16;
    }

    /// A worker with a token begins the greeting.
    /// Both sides prove that they have the same token. Refused with 1, 12.
    17 KnockFrame "knock" ToServer "`KnockV1`" {}

    /// The server's answer to a knock.
    18 ChallengeFrame "challenge" ToWorker "`ChallengeV1`" {}

    /// The worker proves that it has the token.
    /// Both sides prove that they have the same token. Refused with 1, 12.
    19 ProveFrame "prove" ToServer "`ProofV1`" {}

    /// The server proves that it has the token.
    20 ProvenFrame "proven" ToWorker "`ProofV1`" {}

    /// A worker checks that the server is alive.
    /// The server answers at once.
    21 PingFrame "ping" ToServer "-" {}

    /// The answer to a ping.
    22 PongFrame "pong" ToWorker "-" {}
}

frame_rows!(
    HelloFrame,
    WelcomeFrame,
    RefusedFrame,
    KnockFrame,
    ChallengeFrame,
    ProveFrame,
    ProvenFrame,
    PingFrame,
    PongFrame,
);
