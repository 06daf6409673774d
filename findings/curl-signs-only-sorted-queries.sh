#!/bin/sh
# curl's --aws-sigv4 signs a query as it is spelled, so S3's own "?uploads" has a wrong signature.
#
# Guess:    an HTTP library that signs for S3 brings the query into the canonical form that the signature is made of:
#           sorted, encoded, and each name with "=".
# Seen:     it signs the text. A query that is not sorted, a name without "=" (which begins every upload in parts) and a
#           slash that is not encoded are signed wrongly, and sent all the same.
# Versions: curl 7.88.1-10+deb12u15.
# Changed:  server/s3/sign.c: foldback signs requests itself, and uses curl only to send them.
. "$(dirname "$0")/setup"
debian_with curl python3
python3 >"$work/seen" <<'END'
import hashlib, hmac, re, socket, subprocess, threading
from urllib.parse import quote, unquote


def sent(target):
    """What curl sends for the target, signed with the secret "secret"."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests = []

    def answer():
        connection, _ = listener.accept()
        requests.append(connection.recv(65536).decode())
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        connection.close()

    thread = threading.Thread(target=answer)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}{target}"
    signing = ["--user", "key:secret", "--aws-sigv4", "aws:amz:us-east-1:s3"]
    subprocess.run(["curl", "-sS", "--noproxy", "*", *signing, url], check=True)
    thread.join()
    return requests[0]


def digest(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def is_signed_well(request):
    """As Amazon's documentation of Signature Version 4 makes the canonical request."""
    first, *lines = request.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    scope, names, signature = re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=key/(.*), SignedHeaders=(.*), Signature=(.*)", headers["authorization"]
    ).groups()
    path, _, query = target.partition("?")
    pairs = [item.partition("=")[::2] for item in query.split("&") if item]
    encoded = sorted(tuple(quote(unquote(part), safe="-._~") for part in pair) for pair in pairs)
    canonical = [method, path, "&".join("=".join(pair) for pair in encoded)]
    canonical += [f"{name}:{headers[name]}" for name in names.split(";")]
    canonical += ["", names, hashlib.sha256(b"").hexdigest()]
    key = b"AWS4secret"
    for part in scope.split("/"):
        key = digest(key, part)
    hashed = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    return digest(key, "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashed])).hex() == signature


for target in "/b/k", "/b/k?uploads=", "/b/k?uploads", "/b?a=1&b=2", "/b?b=2&a=1", "/b?prefix=a%2Fb", "/b?prefix=a/b":
    print(f"{target:16}", "right" if is_signed_well(sent(target)) else "wrong")
END
expect <<'END'
/b/k             right
/b/k?uploads=    right
/b/k?uploads     wrong
/b?a=1&b=2       right
/b?b=2&a=1       wrong
/b?prefix=a%2Fb  right
/b?prefix=a/b    wrong
END
