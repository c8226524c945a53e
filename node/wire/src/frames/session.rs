//! The greeting, pings, and refusals.

frames! {
    /// A worker says who it is and which thread of the server it wants.
    1 HelloFrame "hello" ToServer "`HelloV1`" {}

    /// A server thread accepts a session and grants its credit. 0 means no limit.
    2 WelcomeFrame "welcome" ToWorker "`WelcomeV1`" {
        W0 "credit requests": credit_requests: u64;
        W1 "credit bytes": credit_bytes: u64;
        W2 "silence ms": silence_ms: u64;
        W3 "lease ms": lease_ms: u64;
    }

    /// The server refuses a request. The session goes on.
    15 RefusedFrame "refused" ToWorker "`RefusedV1`" {
        Aux "code": code: u16;
        W0 "kind": /** The kind of the refused request. */ kind: u16;
    }

    /// A worker with a token begins the greeting.
    17 KnockFrame "knock" ToServer "`KnockV1`" {}

    /// The server's answer to a knock.
    18 ChallengeFrame "challenge" ToWorker "`ChallengeV1`" {}

    /// The worker proves that it has the token.
    19 ProveFrame "prove" ToServer "`ProofV1`" {}

    /// The server proves that it has the token.
    20 ProvenFrame "proven" ToWorker "`ProofV1`" {}

    /// A worker checks that the server is alive.
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
