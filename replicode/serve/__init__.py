"""The explorer: a page on loopback where activations are typed in and their theory appears as it is computed.

`app` has the routes, `guard` looks at every request before them, `requests` reads what is asked for, `jobs` runs it in
processes that can be stopped, `work` is what these processes do, forked from one that is ready (`preload`, `warm`);
`static/` is the page. Text from the browser is parsed
by the language of activations, and never evaluated.
"""
