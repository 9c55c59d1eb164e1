"""A derivation written down: as text, Markdown and LaTeX; the model first, then the result, the steps on request."""

from replicode.derivations.pages import as_latex, as_latex_fragment, as_markdown, as_text

__all__ = ["as_latex", "as_latex_fragment", "as_markdown", "as_text"]
