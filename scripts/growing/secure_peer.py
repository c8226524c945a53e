#!/usr/bin/env python3
"""Stands before a broker of Kafka that has neither TLS nor passwords, and gives it both.

    scripts/growing/secure_peer.py PORT BROKER_PORT --cert PEM --key PEM --user NAME:PASSWORD

A client must speak TLS and log in with SASL PLAIN. What it says then goes to the broker, whose advertised listener is
this port.
"""

import argparse
import socket
import ssl
import struct
import threading

API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE = 18, 17, 36
UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 33, 58


def receive(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def frame(connection):
    return receive(connection, struct.unpack(">i", receive(connection, 4))[0])


def send(connection, answer):
    connection.sendall(struct.pack(">i", len(answer)) + answer)


def pass_on(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
    except OSError:
        pass
    for connection in (source, target):
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def authenticate(request, version, number, user):
    """Whether the password is right, and the answer to the client. Version 2 has compact lengths and tagged fields."""
    sent = request[1:-1] if version >= 2 else request[4:]
    _, name, password = sent.split(b"\0")
    is_right = f"{name.decode()}:{password.decode()}" == user
    code = 0 if is_right else AUTHENTICATION_FAILED
    if version >= 2:
        return is_right, struct.pack(">ibhbb", number, 0, code, 0, 1) + struct.pack(">qb", 0, 0)
    session = struct.pack(">q", 0) if version == 1 else b""
    return is_right, struct.pack(">ihhi", number, code, -1, 0) + session


def log_in(client, broker, user):
    """Answers the client until it has logged in."""
    is_in = False
    while not is_in:
        request = frame(client)
        api, version, number = struct.unpack(">hhi", request[:8])
        name_length = max(0, struct.unpack(">h", request[8:10])[0])
        body = request[10 + name_length :]
        if api == API_VERSIONS:
            send(broker, request)
            answer = frame(broker)
        elif api == SASL_HANDSHAKE:
            code = 0 if body[2:] == b"PLAIN" else UNSUPPORTED_MECHANISM
            answer = struct.pack(">ihih", number, code, 1, len(b"PLAIN")) + b"PLAIN"
        elif api == SASL_AUTHENTICATE:
            # A flexible header ends with tagged fields.
            is_in, answer = authenticate(body[1:] if version >= 2 else body, version, number, user)
        else:
            raise EOFError
        send(client, answer)


def serve(plain, options, tls):
    try:
        client = tls.wrap_socket(plain, server_side=True)
        broker = socket.create_connection(("127.0.0.1", options.broker_port))
        log_in(client, broker, options.user)
    except (EOFError, OSError, ValueError):
        plain.close()
        return
    threading.Thread(target=pass_on, args=(broker, client), daemon=True).start()
    pass_on(client, broker)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("broker_port", type=int)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--user", required=True)
    options = parser.parse_args()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(options.cert, options.key)
    with socket.create_server(("127.0.0.1", options.port)) as listening:
        while True:
            connection = listening.accept()[0]
            threading.Thread(target=serve, args=(connection, options, tls), daemon=True).start()


if __name__ == "__main__":
    main()
