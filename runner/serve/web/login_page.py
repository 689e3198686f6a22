"""The form in which a visitor shows a token. It works without a script."""

import html

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Log in: {cluster}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/page.css">
</head>
<body>
<main id="main" class="login">
<h1>{cluster}</h1>
{problem}
<form method="post" action="/login">
<p><label for="name">Your name, for the journal</label>
<input id="name" name="name" type="text" autocomplete="username" maxlength="40" autofocus></p>
<p><label for="token">Token of a viewer or of an operator</label>
<input id="token" name="token" type="password" autocomplete="current-password" required></p>
<p><button type="submit">Log in</button></p>
</form>
<p><small>The tokens are files on the machine that serves this page; it printed where when it started. An operator may approve,
deny, pause, resume and acknowledge.</small></p>
{without}
</main>
</body>
</html>
"""


def login_page(cluster: str, problem: str, *, is_private: bool) -> str:
    """Return the form, above it what was wrong with the last try; `is_private`: one may read without a token."""
    shown = f'<p class="problem" role="alert">{html.escape(problem)}</p>' if problem else ""
    without = '<p><a href="/">Only read, without a token</a></p>' if is_private else ""
    return _PAGE.format(cluster=html.escape(cluster), problem=shown, without=without)
