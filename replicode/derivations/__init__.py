"""A derivation written down: as text, Markdown and LaTeX; the model first, then the result, the steps on request.

`present` takes a system at a level to one `Derivation`, and to JSON; `statement` is the model in words; `pages` writes
the whole, with long expressions abbreviated (`short`) and broken where a line ends (`fitting`).
"""

from replicode.derivations.pages import as_latex, as_latex_fragment, as_markdown, as_text

__all__ = ["as_latex", "as_latex_fragment", "as_markdown", "as_text"]
