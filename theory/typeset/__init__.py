"""Expressions set out for people: `notation` names and typesets symbols, `arranged` orders, `printers` print."""
