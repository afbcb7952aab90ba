#!/bin/sh
# nng sends a request again each second once `resend_time` has passed.
#
# Expected: "When a new request is started, a timer of the specified duration is also started. If no reply is received
#     before this timer expires, then the request will be resent" (NNG_OPT_REQ_RESENDTIME). So with 5 s, a server that
#     needs 10.5 s gets the request three times: after 0, 5 and 10 s.
# Happens: it gets the request seven times: after 0, 5, 6, 7, 8, 9 and 10 s, over one connection that never breaks. A
#     server with one thread finds six copies when it is finished, and works on each. The client sees one reply and no
#     error. With the default of 60 s the same happens to a server that needs more than a minute.
# Versions: pynng 0.9.0 with nng 1.11.0.
# Source: `req0_retry_cb` in nng's src/sp/protocol/reqrep0/req.c examines all requests each second
#     (NNG_OPT_REQ_RESENDTICK), and `req0_run_send_queue` sends a request again without a new `retry_time`. So its time
#     has passed at each tick.
# Seen:
#     resend_time 5 s, reply after 10.5 s: the client got 1 reply, the server got 7 requests
# In edgebed: nothing.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet pynng==0.9.0
timeout 60 "$folder/venv/bin/python" - <<'PYTHON'
import sys
import threading
import time

import pynng

RESEND = 5  # seconds
WORK = 10.5  # seconds for the first request; for the others none
QUIET = 3  # seconds without another request
EXPECTED = 3

requests = 0


def serve(server: pynng.Rep0) -> None:
    global requests
    server.recv()
    requests = 1
    time.sleep(WORK)
    server.send(b"done")
    server.recv_timeout = QUIET * 1000
    while True:
        try:
            server.recv()
        except pynng.Timeout:
            return
        requests += 1
        server.send(b"done")


with pynng.Rep0(listen="tcp://127.0.0.1:0") as server:
    address = f"tcp://{server.listeners[0].local_address}"
    serving = threading.Thread(target=serve, args=(server,))
    serving.start()
    with pynng.Req0(dial=address, block_on_dial=True, resend_time=RESEND * 1000) as client:
        client.send(b"add this update")
        client.recv()
        serving.join()
        replies = 1
        client.recv_timeout = 1000
        try:
            client.recv()
            replies += 1
        except (pynng.Timeout, pynng.BadState):
            pass
print(f"resend_time {RESEND} s, reply after {WORK} s: ", end="")
print(f"the client got {replies} reply, the server got {requests} requests")
if requests <= EXPECTED:
    sys.exit("changed: a request is sent again each resend_time at most")
PYTHON
