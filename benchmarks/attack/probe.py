"""Status requests to a server, one every fifth of a second, each with a connection of its own, until stdin is closed.

    python probe.py HOST PORT TOKEN

Prints a line when it begins, and in the end, as JSON, the seconds that each took, null for those that failed. It is a
process of its own, so that what is measured is the server and not the attack.
"""

from __future__ import annotations

import http.client
import json
import select
import sys
import time


def main() -> None:
    host, port, token = sys.argv[1:]
    times: list[float | None] = []
    print("ready", flush=True)  # an attack that is over before this process has started would not be seen
    while not select.select([sys.stdin], [], [], 0.2)[0]:
        begin = time.monotonic()
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        try:
            connection.request("GET", "/api/queries", headers={"Authorization": f"Bearer {token}"})
            answered = connection.getresponse()
            answered.read()
            times.append(time.monotonic() - begin if answered.status == 200 else None)
        except (OSError, http.client.HTTPException):
            times.append(None)
        finally:
            connection.close()
    print(json.dumps(times))


if __name__ == "__main__":
    main()
