"""Show: the tables as text, Markdown, CSV and one self-contained HTML page."""
