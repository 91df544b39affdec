"""The page at the server's root, for people who open its address in a browser.

It says what this is and how to register, and nothing about parties or studies.  It holds no script,
sets no cookie and loads nothing.
"""

import base64
import hashlib
from html import escape

from starlette.responses import HTMLResponse

from veiltab.crypto.fingerprint import fingerprint
from veiltab.wire.contract import PublicIdentity

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:1rem/1.55 system-ui,sans-serif;max-width:42rem;margin:12vh auto 4rem;"
    "padding:0 1.25rem;overflow-wrap:break-word}"
    "h1{line-height:1.2}dt{opacity:.75}dd{margin:0 0 .8rem;font-weight:600}"
    "code,.digits{font-family:ui-monospace,monospace}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}

_PAGE = """<!doctype html>
<html lang="en-GB">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>{name} – veiltab</title>
<style>{style}</style>
</head>
<body>
<main>
<h1><bdi>{name}</bdi></h1>
<p>This is a veiltab server. Organisations that may not share records make joint statistics through
it. It stores and joins what they have encrypted, and cannot read it.</p>
<dl>
<dt>Fingerprint</dt><dd class="digits">{digits}</dd>
</dl>
<h2>To register</h2>
<ol>
<li>Ask the operator of this server for an invitation.</li>
<li>Have the operator read the fingerprint to you by telephone. Do not rely on this page:
whoever could stand between you and the server could change it.</li>
<li>Give the invitation and the digits that you were told to the page Identity of your own
<code>veiltab console</code>, or to <code>veiltab register</code>.</li>
</ol>
<p>There is nothing else to see here: everything about studies is for their parties alone.</p>
</main>
</body>
</html>
"""


def front_page(identity: PublicIdentity) -> HTMLResponse:
    """Return the page of a server."""
    digits = fingerprint(identity.party_id)
    page = _PAGE.format(name=escape(identity.name), style=_STYLE, digits=digits)
    return HTMLResponse(page, headers=HEADERS)
