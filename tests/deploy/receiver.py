"""`python receiver.py PORT FILE`: a webhook that writes a line for each alert that it gets: path, name, status, labels."""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Receiver(BaseHTTPRequestHandler):
    """Takes what Alertmanager sends."""

    def do_POST(self) -> None:
        """Write its alerts down."""
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Path(sys.argv[2]).open("a") as file:
            for alert in message["alerts"]:
                row = [self.path, alert["labels"]["alertname"], alert["status"], alert["labels"]]
                file.write(json.dumps(row) + "\n")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


if __name__ == "__main__":
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
