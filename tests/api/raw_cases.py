"""What arrives on a socket when somebody tries: requests that two parsers may read differently, and what the service makes of
each.

A case is (name, bytes, status, code). `status` is that of the answer to the first request: 0 when the connection is closed
without one. `code` is the problem's, None where libmicrohttpd answers with a page of its own, OK where the request is a good
one. After the bytes of every case a second request follows at once; it must not run, except after a good request of known
length (KEPT).
"""

OK = "ok"  # a good request; the connection is closed after it
KEPT = "kept"  # a good request; the connection is kept and what follows runs

# Problems of requests whose end is known beyond doubt: they are refused for what they ask, and the connection is kept where the
# body is small.
HARMLESS = {
    "missing-body", "unexpected-body", "not-found", "method-not-allowed", "unsupported-media-type",
    "unsupported-encoding", "foreign-origin",
}

BODY = (
    b'{"format":"foldback.graph/1","name":"raw","nodes":[{"name":"x","op":"placeholder","target":"x"},'
    b'{"name":"output","op":"output","target":"output","args":[{"$node":"x"}]}],'
    b'"modules":[{"path":"","type":"torch.nn.Module"}],"tensors":[]}'
)
SIZE = b"%d" % len(BODY)
CHUNKS = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)


def lines(*all_lines, end=b"\r\n"):
    return b"".join(line + end for line in all_lines) + end


def get(*headers, target=b"/livez", version=b"HTTP/1.1", host=b"Host: localhost", method=b"GET", end=b"\r\n"):
    return lines(b" ".join((method, target, version)), *([host] if host else []), *headers, end=end)


def post(*headers, body=BODY, **options):
    return get(*headers, target=b"/v1/graphs", method=b"POST", **options) + body


def chunked(body, *headers):
    return post(b"Transfer-Encoding: chunked", *headers, body=body)


LENGTHS = [
    ("good", post(b"Content-Length: " + SIZE), 201, KEPT),
    ("leading-zeros", post(b"Content-Length: 000" + SIZE), 201, KEPT),
    ("no-space-after-the-colon", post(b"Content-Length:" + SIZE), 201, KEPT),
    ("tab-after-the-colon", post(b"Content-Length:\t" + SIZE), 201, KEPT),
    ("lower-case-name", post(b"content-length: " + SIZE), 201, KEPT),
    ("zero-where-no-body-is-taken", get(b"Content-Length: 0"), 200, KEPT),
    ("zero-where-a-body-is-needed", post(b"Content-Length: 0", body=b""), 400, "missing-body"),
    ("body-where-none-is-taken", get(b"Content-Length: 2") + b"{}", 400, "unexpected-body"),
    ("none", post(body=b""), 400, "missing-body"),
    *[
        (name, post(b"Content-Length: " + first, b"Content-Length: " + second), 400, "bad-framing")
        for name, first, second in [
            ("two-that-differ", SIZE, b"5"), ("the-other-way-round", b"5", SIZE), ("the-same-twice", SIZE, SIZE),
            ("zero-first", b"0", SIZE), ("zero-last", SIZE, b"0"), ("zero-twice", b"0", b"0"),
            ("second-is-no-number", SIZE, b"x"),
            ("second-is-empty", SIZE, b""), ("second-is-negative", SIZE, b"-1"),
        ]
    ],
    ("three", post(*[b"Content-Length: " + SIZE] * 3), 400, "bad-framing"),
    ("two-names-in-two-cases", post(b"Content-Length: 5", b"CONTENT-LENGTH: " + SIZE), 400, "bad-framing"),
    ("two-far-apart", post(b"Content-Length: 5", *[b"X-%d: a" % i for i in range(40)], b"Content-Length: " + SIZE), 400,
     "bad-framing"),
    *[
        (name, post(b"Content-Length: " + value), status, code)
        for name, value, status, code in [
            ("plus", b"+" + SIZE, 400, None), ("minus", b"-" + SIZE, 400, None),
            ("minus-zero", b"-0", 400, None), ("plus-zero", b"+0", 400, None),
            ("list-of-the-same", SIZE + b", " + SIZE, 400, None), ("list-without-a-space", SIZE + b"," + SIZE, 400, None),
            ("list-of-two", b"5, " + SIZE, 400, None), ("comma-at-the-end", SIZE + b",", 400, None),
            ("comma-at-the-start", b"," + SIZE, 400, None), ("hexadecimal", b"0x10", 400, None),
            ("hexadecimal-digits", b"1f", 400, None), ("octal-prefix", b"0o17", 400, None),
            ("exponent", b"1e2", 400, None), ("fraction", b"5.0", 400, None), ("empty", b"", 400, None),
            ("blank", b"  ", 400, None), ("space-inside", b"1 2", 400, None),
            ("space-after-the-number", SIZE + b" ", 400, None), ("tab-after-the-number", SIZE + b"\t", 400, None),
            ("vertical-tab", b"\v" + SIZE, 400, None), ("form-feed", SIZE + b"\f", 400, None),
            ("NUL-after-the-number", SIZE + b"\0", 400, "bad-framing"), ("NUL-inside", b"5\0" + SIZE, 400, "bad-framing"),
            ("semicolon", SIZE + b";", 400, None), ("quoted", b'"' + SIZE + b'"', 400, None),
            ("word", b"many", 400, None), ("non-breaking-space", b"\xa0" + SIZE, 400, None),
            ("arabic-digits", "٥".encode(), 400, None), ("underscore", b"1_0", 400, None),
            ("19-digits", b"1" * 19, 400, "bad-framing"),
            ("leading-zeros-to-19-digits", SIZE.rjust(19, b"0"), 400, "bad-framing"),
            ("2^63", b"9223372036854775808", 400, "bad-framing"), ("2^64-1", b"18446744073709551615", 400, "bad-framing"),
            ("2^64", b"18446744073709551616", 413, None), ("2^64+1", b"18446744073709551617", 413, None),
            ("2^64+the-size", b"%d" % (2**64 + len(BODY)), 413, None), ("a-hundred-digits", b"9" * 100, 413, None),
            ("18-digits", b"9" * 18, 413, "body-too-large"), ("a-terabyte", b"1099511627776", 413, "body-too-large"),
        ]
    ],
]

TRANSFER_CODINGS = [
    ("good", chunked(CHUNKS), 201, OK),
    ("upper-case", post(b"TRANSFER-ENCODING: CHUNKED", body=CHUNKS), 201, OK),
    ("no-space-after-the-colon", post(b"Transfer-Encoding:chunked", body=CHUNKS), 201, OK),
    ("tab-after-the-colon", post(b"Transfer-Encoding:\tchunked", body=CHUNKS), 201, OK),
    ("two-spaces-after-the-colon", post(b"Transfer-Encoding:  chunked", body=CHUNKS), 201, OK),
    ("length-before", post(b"Content-Length: " + SIZE, b"Transfer-Encoding: chunked"), 400, "bad-framing"),
    ("length-after", post(b"Transfer-Encoding: chunked", b"Content-Length: " + SIZE), 400, "bad-framing"),
    ("length-and-chunks", post(b"Content-Length: %d" % len(CHUNKS), b"Transfer-Encoding: chunked", body=CHUNKS), 400,
     "bad-framing"),
    ("short-length-and-chunks", post(b"Content-Length: 4", b"Transfer-Encoding: chunked", body=CHUNKS), 400, "bad-framing"),
    ("zero-length-and-chunks", post(b"Content-Length: 0", b"Transfer-Encoding: chunked", body=CHUNKS), 400, "bad-framing"),
    ("long-length-and-an-end", post(b"Content-Length: 900", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"), 400,
     "bad-framing"),
    ("length-and-identity", post(b"Content-Length: " + SIZE, b"Transfer-Encoding: identity"), 400, "bad-framing"),
    ("length-and-an-empty-one", post(b"Content-Length: " + SIZE, b"Transfer-Encoding:"), 400, "bad-framing"),
    ("twice", post(*[b"Transfer-Encoding: chunked"] * 2, body=CHUNKS), 400, "bad-framing"),
    ("identity-then-chunked", post(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked", body=CHUNKS), 400,
     "bad-framing"),
    ("chunked-then-identity", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity", body=CHUNKS), 400,
     "bad-framing"),
    ("chunked-then-x", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x", body=CHUNKS), 400, "bad-framing"),
    ("in-1.0", post(b"Transfer-Encoding: chunked", body=CHUNKS, version=b"HTTP/1.0"), 400, "bad-framing"),
    ("on-a-get", get(b"Transfer-Encoding: chunked") + b"2\r\n{}\r\n0\r\n\r\n", 400, "unexpected-body"),
    ("empty-on-a-get", get(b"Transfer-Encoding: chunked") + b"0\r\n\r\n", 400, "unexpected-body"),
    ("name-with-an-underscore", post(b"Transfer_Encoding: chunked", b"Content-Length: " + SIZE), 201, KEPT),
    *[
        (name, post(b"Transfer-Encoding: " + value, body=CHUNKS), 400, "bad-framing")
        for name, value in [
            ("gzip", b"gzip"), ("gzip-and-chunked", b"gzip, chunked"), ("chunked-and-gzip", b"chunked, gzip"),
            ("identity", b"identity"),
            ("identity-and-chunked", b"identity, chunked"), ("chunked-twice-in-a-list", b"chunked, chunked"), ("empty", b""),
            ("comma", b"chunked,"), ("comma-first", b",chunked"), ("xchunked", b"xchunked"), ("chunkedx", b"chunkedx"),
            ("chunk", b"chunk"), ("cow", b"cow"), ("quoted", b'"chunked"'), ("parameter", b"chunked;q=1"),
            ("semicolon", b"chunked;"),
            ("space-after", b"chunked "), ("tab-after", b"chunked\t"), ("vertical-tab-before", b"\vchunked"),
            ("vertical-tab-after", b"chunked\v"), ("form-feed", b"\fchunked"), ("NUL-after", b"chunked\0"),
            ("NUL-inside", b"chun\0ked"),
            ("NUL-and-more", b"chunked\0, gzip"), ("bare-CR-before", b"\rchunked"), ("bare-CR-after", b"chunked\rx"),
            ("high-byte", b"\xa0chunked"), ("high-byte-after", b"chunked\xff"), ("long-s", "ſchunked".encode()),
            ("kelvin-sign", "chun\u212aed".encode()), ("dotted", b"chunked."), ("deflate", b"deflate"),
            ("trailers", b"trailers"),
        ]
    ],
    *[
        (name, post(name_and_colon + b" chunked", body=CHUNKS), status, code)
        for name, name_and_colon, status, code in [
            ("space-before-the-colon", b"Transfer-Encoding :", 400, "bad-framing"),
            ("tab-before-the-colon", b"Transfer-Encoding\t:", 400, "bad-framing"),
            ("space-before-the-name", b" Transfer-Encoding:", 400, "bad-framing"),
            ("tab-before-the-name", b"\tTransfer-Encoding:", 400, "bad-framing"),
            ("NUL-before-the-colon", b"Transfer-Encoding\0:", 400, None),
            ("high-byte-in-the-name", b"Transfer-Encoding\xff:", 400, "bad-framing"),
            ("quotes-around-the-name", b'"Transfer-Encoding":', 400, "bad-framing"),
            ("vertical-tab-before-the-colon", b"Transfer-Encoding\v:", 400, "bad-framing"),
        ]
    ],
    ("hidden-in-another-value", post(b"X: a\nTransfer-Encoding: chunked", body=CHUNKS), 400, "bad-framing"),
    ("hidden-behind-a-bare-CR", post(b"X: a\rTransfer-Encoding: chunked", body=CHUNKS), 400, "bad-framing"),
    ("hidden-behind-a-NUL", post(b"X: a\0Transfer-Encoding: chunked", b"Content-Length: " + SIZE), 400, "bad-framing"),
    ("folded", post(b"Transfer-Encoding:", b" chunked", body=CHUNKS), 400, "bad-framing"),
    ("folded-tail", post(b"Transfer-Encoding: chunked", b" , gzip", body=CHUNKS), 400, "bad-framing"),
]

CHUNKED_BODIES = [
    ("one-byte-chunks", chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n"), 201, OK),
    ("upper-and-lower-case-sizes", chunked(b"A\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (BODY[:10], len(BODY) - 10, BODY[10:])), 201,
     OK),
    ("leading-zeros", chunked(b"0000%x\r\n%s\r\n000\r\n\r\n" % (len(BODY), BODY)), 201, OK),
    ("extension", chunked(CHUNKS.replace(b"\r\n", b";name=value\r\n", 1)), 201, OK),
    ("quoted-extension", chunked(CHUNKS.replace(b"\r\n", b';a="b;c"\r\n', 1)), 201, OK),
    ("extension-without-a-name", chunked(CHUNKS.replace(b"\r\n", b";\r\n", 1)), 201, OK),
    ("extension-on-the-last", chunked(CHUNKS.replace(b"0\r\n\r\n", b"0;a=b\r\n\r\n")), 201, OK),
    ("bare-LF-in-an-extension", chunked(b"%x;a\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)), 201, OK),
    ("bare-CR-in-an-extension", chunked(b"%x;a\rb\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)), 201, OK),
    ("bare-LF-after-a-size", chunked(b"%x\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)), 201, OK),
    ("bare-LF-after-a-chunk", chunked(b"%x\r\n%s\n0\r\n\r\n" % (len(BODY), BODY)), 201, OK),
    ("bare-LF-everywhere", chunked(CHUNKS.replace(b"\r\n", b"\n")), 201, OK),
    ("trailer", chunked(CHUNKS[:-2] + lines(b"X: y")), 400, "bad-framing"),
    ("length-in-a-trailer", chunked(CHUNKS[:-2] + lines(b"Content-Length: 5")), 400, "bad-framing"),
    ("announced-trailer", chunked(CHUNKS[:-2] + lines(b"X: y"), b"Trailer: X"), 400, "bad-framing"),
    ("bad-trailer", chunked(CHUNKS[:-2] + lines(b"no colon")), 400, None),
    ("trailer-with-a-bare-LF", chunked(CHUNKS[:-2] + b"X: y\n\n"), 400, "bad-framing"),
    ("nothing", chunked(b"0\r\n\r\n"), 400, "missing-body"),
    *[
        (name, chunked(body), 400, None)
        for name, body in [
            ("negative", b"-2\r\n{}\r\n0\r\n\r\n"), ("plus", b"+2\r\n{}\r\n0\r\n\r\n"),
            ("hexadecimal-prefix", b"0x2\r\n{}\r\n0\r\n\r\n"),
            ("no-number", b"zz\r\n{}\r\n0\r\n\r\n"), ("empty-size", b"\r\n{}\r\n0\r\n\r\n"),
            ("space-before", b" 2\r\n{}\r\n0\r\n\r\n"),
            ("space-after", b"2 \r\n{}\r\n0\r\n\r\n"), ("tab-after", b"2\t\r\n{}\r\n0\r\n\r\n"),
            ("only-an-extension", b";a\r\n{}\r\n0\r\n\r\n"),
            ("quoted", b'"2"\r\n{}\r\n0\r\n\r\n'), ("underscore", b"0_2\r\n{}\r\n0\r\n\r\n"),
            ("NUL", b"2\0\r\n{}\r\n0\r\n\r\n"),
            ("comma", b"2,2\r\n{}\r\n0\r\n\r\n"), ("too-long-a-chunk", b"2\r\n{}}\r\n0\r\n\r\n"),
            ("no-end-of-a-chunk", b"2\r\n{}0\r\n\r\n"), ("bare-CR-after-a-chunk", b"2\r\n{}\rx0\r\n\r\n"),
        ]
    ],
    ("2^64", chunked(b"10000000000000000\r\n{}\r\n0\r\n\r\n"), 413, None),
    ("32-digits", chunked(b"f" * 32 + b"\r\n{}\r\n0\r\n\r\n"), 413, None),
]

HOSTS = [
    ("good", get(), 200, KEPT),
    ("with-a-port", get(host=b"Host: example.org:8080"), 200, KEPT),
    ("IPv6", get(host=b"Host: [::1]:8080"), 200, KEPT),
    ("none", get(host=None), 400, "bad-framing"),
    ("twice", get(b"Host: b"), 400, "bad-framing"),
    ("the-same-twice", get(b"Host: localhost"), 400, "bad-framing"),
    ("twice-in-1.0", get(b"Host: b", version=b"HTTP/1.0"), 400, "bad-framing"),
    ("empty", get(host=b"Host:"), 400, "bad-framing"),
    ("with-a-path", get(host=b"Host: localhost/b"), 400, "bad-framing"),
    ("with-a-user", get(host=b"Host: u@a"), 400, "bad-framing"),
    ("with-a-query", get(host=b"Host: localhost?b"), 400, "bad-framing"),
    ("with-a-fragment", get(host=b"Host: localhost#b"), 400, "bad-framing"),
    ("list", get(host=b"Host: localhost, b"), 400, "bad-framing"),
    ("two-words", get(host=b"Host: localhost b"), 400, "bad-framing"),
    ("quoted", get(host=b'Host: "a"'), 400, "bad-framing"),
    ("with-a-control-character", get(host=b"Host: localhost\x01"), 400, "bad-framing"),
    ("with-a-backslash", get(host=b"Host: localhost\\b"), 400, "bad-framing"),
    ("in-Latin-1", get(host=b"Host: \xe9"), 400, "bad-framing"),
    ("space-before-the-colon", get(host=b"Host : a"), 400, "bad-framing"),
    ("with-a-NUL", get(host=b"Host: localhost\0b"), 400, "bad-framing"),
]

LINES = [
    ("bare-LF-everywhere", get(end=b"\n"), 400, "bad-framing"),
    ("bare-LF-after-the-request-line", b"GET /livez HTTP/1.1\n" + lines(b"Host: localhost"), 400, "bad-framing"),
    ("bare-LF-after-a-header", b"GET /livez HTTP/1.1\r\nHost: localhost\nX: b\r\n\r\n", 400, "bad-framing"),
    ("bare-LF-after-the-last-header", b"GET /livez HTTP/1.1\r\nHost: localhost\n\r\n", 400, "bad-framing"),
    ("bare-LF-at-the-end", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\n", 400, "bad-framing"),
    ("bare-LF-before-a-body", b"POST /v1/graphs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\n%s" % (SIZE, BODY), 400,
     "bad-framing"),
    ("bare-LF-in-1.0", get(end=b"\n", version=b"HTTP/1.0", host=None), 400, "bad-framing"),
    ("LF-CR", get(end=b"\n\r"), 400, "bad-framing"),
    ("CR-CR-LF", get(end=b"\r\r\n"), 400, None),
    ("bare-CR-in-a-value", get(b"X: a\rb"), 400, "bad-framing"),
    ("bare-CR-in-the-request-line", b"GET /livez\r HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-target"),
    ("bare-CR-in-the-version", b"GET /livez HTTP/1.1\r \r\nHost: localhost\r\n\r\n", 400, None),
    ("fold-with-a-space", get(b"X: a", b" b"), 400, "bad-framing"),
    ("fold-with-a-tab", get(b"X: a", b"\tb"), 400, "bad-framing"),
    ("fold-of-a-name", get(b"X: a", b" Content-Length: 5"), 400, "bad-framing"),
    ("fold-that-is-empty", get(b"X: a", b" "), 400, "bad-framing"),
    ("fold-twice", get(b"X: a", b" b", b" c"), 400, "bad-framing"),
    ("fold-of-the-host", get(host=b"Host:", version=b"HTTP/1.1").replace(b"\r\n\r\n", b"\r\n a\r\n\r\n"), 400, "bad-framing"),
    ("fold-before-the-first-header", b"GET /livez HTTP/1.1\r\n X: a\r\nHost: localhost\r\n\r\n", 400, "bad-framing"),
    ("space-before-the-colon", get(b"X : a"), 400, "bad-framing"),
    ("tab-before-the-colon", get(b"X\t: a"), 400, "bad-framing"),
    ("length-with-a-space-before-the-colon", post(b"Content-Length : " + SIZE), 400, "bad-framing"),
    ("space-inside-a-name", get(b"X Y: a"), 400, "bad-framing"),
    ("no-colon", get(b"X"), 400, None),
    ("no-name", get(b": a"), 400, "bad-framing"),
    ("only-a-colon", get(b":"), 400, "bad-framing"),
    ("no-value", get(b"X:"), 200, KEPT),
    ("value-of-blanks", get(b"X: \t "), 200, KEPT),
    ("tab-inside-a-value", get(b"X: a\tb"), 200, KEPT),
    ("Latin-1-in-a-value", get(b"X: \xe9"), 200, KEPT),
    ("high-byte-in-a-name", get(b"X\xe9: a"), 400, "bad-framing"),
    ("NUL-in-a-name", get(b"X\0Y: a"), 400, None),
    ("NUL-in-a-value", get(b"X: a\0b"), 400, "bad-framing"),
    ("NUL-at-the-end-of-a-value", get(b"X: a\0"), 400, "bad-framing"),
    ("NUL-line", get(b"\0X: a"), 400, "bad-framing"),
    # Hidden from us: see docs/http-guards.md
    ("NUL-and-bare-LF", b"GET /livez HTTP/1.1\r\nHost: localhost\0\nX: b\r\n\r\n", 200, KEPT),
    ("NUL-and-bare-LF-at-the-end", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\0\n", 200, KEPT),  # the same
    ("NUL-and-bare-LF-after-the-request-line", b"GET /livez HTTP/1.1\0\nHost: localhost\r\n\r\n", 400, None),
    ("escape-character", get(b"X: \x1b[2J"), 400, "bad-framing"),
    ("delete-character", get(b"X: \x7f"), 400, "bad-framing"),
    *[(f"name-with-{ord(c):02x}", get(b"X%c: a" % ord(c)), 400, "bad-framing") for c in '(){}[]<>@,;\\"/?='],
    ("one-empty-line-before", b"\r\n" + get(), 200, KEPT),
]

REQUEST_LINES = [
    ("two-spaces-before-the-target", b"GET  /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-framing"),
    ("two-spaces-before-the-version", b"GET /livez  HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-target"),
    ("space-after-the-version", b"GET /livez HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400, None),
    ("space-first", b" GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, None),
    ("tabs", b"GET\t/livez\tHTTP/1.1\r\nHost: localhost\r\n\r\n", 0, None),
    ("space-in-the-target", get(target=b"/li vez"), 400, "bad-target"),
    ("no-version", b"GET /livez\r\n\r\n", 400, None),
    ("no-target", b"GET\r\n\r\n", 0, None),
    ("no-target-but-a-space", b"GET \r\n\r\n", 400, None),
    ("no-method", b" /livez HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, None),
    ("HTTP/0.9", get(version=b"HTTP/0.9"), 505, None),
    ("HTTP/1.0", get(version=b"HTTP/1.0", host=None), 200, OK),
    ("HTTP/1.0-with-a-host", get(version=b"HTTP/1.0"), 200, OK),
    ("HTTP/1.0-kept-alive", get(b"Connection: keep-alive", version=b"HTTP/1.0"), 200, KEPT),
    ("HTTP/1.2", get(version=b"HTTP/1.2"), 400, "bad-framing"),
    ("HTTP/1.10", get(version=b"HTTP/1.10"), 400, None),
    ("HTTP/2.0", get(version=b"HTTP/2.0"), 505, None),
    ("HTTP/2-preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, None),
    ("HTTP/3", get(version=b"HTTP/3"), 400, None),
    ("HTTP/9.9", get(version=b"HTTP/9.9"), 505, None),
    ("lower-case-version", get(version=b"http/1.1"), 400, None),
    ("version-with-zeros", get(version=b"HTTP/01.1"), 400, None),
    ("version-without-a-dot", get(version=b"HTTP/11"), 400, None),
    ("another-protocol", get(version=b"ICY/1.1"), 400, None),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 0, None),
    ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n\r\n", 0, None),
    ("lower-case-method", get(method=b"get"), 405, "method-not-allowed"),
    ("mixed-case-method", get(method=b"Get"), 405, "method-not-allowed"),
    ("unknown-method", get(method=b"FROB"), 405, "method-not-allowed"),
    ("TRACE", get(method=b"TRACE"), 405, "method-not-allowed"),
    ("CONNECT", get(method=b"CONNECT", target=b"a:80"), 400, "bad-target"),
    ("PATCH-of-what-is-only-read", get(method=b"PATCH"), 405, "method-not-allowed"),
    ("long-method", get(method=b"A" * 1000), 405, "method-not-allowed"),
    ("method-with-a-control-character", get(method=b"G\x01T"), 400, "bad-framing"),
    ("method-with-a-colon", get(method=b"G:T"), 400, "bad-framing"),
    ("method-with-a-high-byte", get(method=b"G\xffT"), 400, "bad-framing"),
    ("method-with-a-NUL", get(method=b"GET\0"), 400, "bad-framing"),
    ("POST-with-a-GETs-path", get(method=b"POST"), 405, "method-not-allowed"),
]

TARGETS = [
    (name, get(target=target), 400, "bad-target")
    for name, target in [
        ("absolute-form", b"http://a/livez"), ("absolute-form-of-another-host", b"http://evil.example/livez"),
        ("absolute-form-https", b"https://a/livez"), ("authority-form", b"a:80"), ("asterisk", b"*"), ("no-slash", b"livez"),
        ("NUL-escaped", b"/livez%00"), ("NUL-escaped-inside", b"/v1/passes/a%00b"), ("slash-escaped", b"/v1%2fpasses"),
        ("slash-escaped-upper-case", b"/v1%2Fpasses"), ("dot-segment", b"/v1/./passes"), ("two-dots", b"/v1/../livez"),
        ("two-dots-at-the-end", b"/v1/.."), ("two-dots-at-the-start", b"/../livez"), ("dots-escaped", b"/v1/%2e%2e/livez"),
        ("dots-half-escaped", b"/v1/.%2e/livez"), ("one-dot-escaped", b"/v1/%2E/passes"), ("not-hexadecimal", b"/%zz"),
        ("escape-cut-short", b"/livez%4"), ("escape-alone", b"/livez%"), ("escape-with-a-sign", b"/%+1"),
        ("not-UTF-8", b"/%ff"),
        ("overlong-slash", b"/%c0%af"), ("overlong-NUL", b"/%c0%80"), ("surrogate", b"/%ed%a0%80"),
        ("beyond-Unicode", b"/%f4%90%80%80"),
        ("UTF-8-cut-short", b"/%e2%82"), ("raw-high-byte", b"/\xff"), ("escaped-CR-LF", b"/a%0d%0aX:%20b"),
        ("escaped-tab", b"/a%09b"),
        ("escaped-delete", b"/a%7f"), ("fragment", b"/livez#x"), ("control-character", b"/a\x01b"),
        ("delete-character", b"/a\x7fb"),
        ("NUL-in-the-query", b"/v1/passes?a=%00"), ("not-UTF-8-in-the-query", b"/v1/passes?%ff"),
        ("bad-escape-in-the-query", b"/v1/passes?a=%z"),
        ("25-segments", b"/a" * 25),
    ]
] + [
    ("raw-NUL", get(target=b"/livez\0"), 400, "bad-framing"),
    ("asterisk-with-OPTIONS", get(method=b"OPTIONS", target=b"*"), 400, "bad-target"),
    ("two-slashes", get(target=b"//livez"), 404, "not-found"),
    ("escaped-letter", get(target=b"/%6civez"), 200, KEPT),
    ("escaped-percent", get(target=b"/livez%2500"), 404, "not-found"),
    ("three-dots", get(target=b"/..."), 404, "not-found"),
    ("backslash", get(target=b"/v1\\..\\livez"), 404, "not-found"),
    ("parameter-of-a-path", get(target=b"/livez;a=b"), 404, "not-found"),
    ("empty-query", get(target=b"/livez?"), 200, KEPT),
    ("9000-bytes", get(target=b"/" + b"a" * 9000), 414, "target-too-long"),
    ("9000-bytes-of-query", get(target=b"/livez?" + b"a" * 9000), 414, "target-too-long"),
    ("300000-bytes", get(target=b"/" + b"a" * 300000), 414, None),
]

SIZES = [
    ("30000-bytes-of-header", get(b"X: " + b"a" * 30000), 200, KEPT),
    ("33000-bytes-of-header", get(b"X: " + b"a" * 33000), 431, "headers-too-large"),
    ("33000-bytes-of-name", get(b"X" * 33000 + b": a"), 431, "headers-too-large"),
    ("300000-bytes-of-header", get(b"X: " + b"a" * 300000), 431, None),
    ("120-headers", get(*[b"X-%d: a" % i for i in range(120)]), 200, KEPT),
    ("129-headers", get(*[b"X-%d: a" % i for i in range(128)]), 431, "headers-too-large"),
    ("the-same-header-200-times", get(*[b"X: a"] * 200), 431, "headers-too-large"),
    ("10000-headers", get(*[b"X: a"] * 10000), 431, None),
    ("length-as-header-130", get(*[b"X: a"] * 130, b"Content-Length: 5", b"Content-Length: 6"), 400, "bad-framing"),
]

CONNECTIONS = [
    ("continue-refused", post(b"Content-Length: 1099511627776", b"Expect: 100-continue", body=b""), 413, "body-too-large"),
    ("unknown-expectation", post(b"Content-Length: " + SIZE, b"Expect: magic"), 417, "unknown-expectation"),
    ("two-expectations", post(b"Content-Length: " + SIZE, b"Expect: 100-continue, magic"), 417, "unknown-expectation"),
    ("expectation-without-a-body", get(b"Expect: magic"), 417, "unknown-expectation"),
    ("upgrade-to-HTTP/2", get(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c",
                              b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"), 200, KEPT),
    ("upgrade-to-a-web-socket", get(b"Connection: Upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Key: eA=="), 200, KEPT),
    ("close", get(b"Connection: close"), 200, OK),
    ("close-in-a-list", get(b"Connection: x, close"), 200, OK),
    ("close-in-upper-case", get(b"connection: CLOSE"), 200, OK),
    ("Connection-names-the-length", post(b"Connection: Content-Length", b"Content-Length: " + SIZE), 201, KEPT),
    ("another-media-type", post(b"Content-Length: " + SIZE, b"Content-Type: text/html"), 415, "unsupported-media-type"),
    ("another-coding", post(b"Content-Length: " + SIZE, b"Content-Encoding: br"), 415, "unsupported-encoding"),
    ("another-origin", post(b"Content-Length: " + SIZE, b"Origin: http://evil.example"), 403, "foreign-origin"),
    ("X-HTTP-Method-Override", get(b"X-HTTP-Method-Override: DELETE"), 200, KEPT),
    ("X-Original-URL", get(b"X-Original-URL: /v1/graphs", b"X-Rewrite-URL: /v1/graphs"), 200, KEPT),
]

# Requests that are not all there when the client ends its sending, and what is answered: nothing was to be done.
CUT_SHORT = [
    ("nothing", b""), ("part-of-a-method", b"GE"), ("part-of-a-line", b"GET /livez HTTP"),
    ("a-line", b"GET /livez HTTP/1.1\r\n"),
    ("part-of-a-header", b"GET /livez HTTP/1.1\r\nHos"),
    ("headers-without-an-end", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"),
    ("half-an-end", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r"), ("no-body", post(b"Content-Length: " + SIZE, body=b"")),
    ("part-of-a-body", post(b"Content-Length: " + SIZE, body=BODY[:-1])), ("part-of-a-size", chunked(b"1")),
    ("a-size", chunked(b"10\r\n")), ("part-of-a-chunk", chunked(CHUNKS[:30])), ("a-chunk", chunked(CHUNKS[:-7])),
    ("no-last-chunk", chunked(CHUNKS[:-5])), ("no-last-line", chunked(CHUNKS[:-2])), ("half-a-last-line", chunked(CHUNKS[:-1])),
    ("part-of-a-trailer", chunked(CHUNKS[:-2] + b"X: y\r\n")), ("only-empty-lines", b"\r\n\r\n"),
]

GROUPS = {
    "length": LENGTHS, "coding": TRANSFER_CODINGS, "chunks": CHUNKED_BODIES, "host": HOSTS, "line": LINES,
    "request": REQUEST_LINES,
    "target": TARGETS, "size": SIZES, "connection": CONNECTIONS,
}
CASES = [(f"{group}:{name}", *rest) for group, cases in GROUPS.items() for name, *rest in cases]
